"""What the team did: from stored episodes, in one pass.

    found = diagnose(stored.episodes())            # or Diagnosing(): .add(episode) …, .result()
    found.to_json()

The shapes of `Diagnosis.to_json()`; every `Rate` is

    {"value", "low", "high", "hits", "of", "questions"}

with value, low and high in percent (None where `of` is 0), `hits` of `of` cases counted, and the
question-clustered 95 % interval of `rates.Rate`.

    episodes, questions    how many counted
    failed, forks          how many were left out: not finished; resampled from another episode
    counted                in words: of which episodes calls, tokens and all else are counted
    not_applicable         {"verdicts": why, …} for each part below that is None
    notes                  [text]: what a reader must know about the numbers
    verdicts               None, or
        truth              in words: what a verdict is held against
        states             ["right", "wrong"] (solver and verifier) or
                           ["sufficient", "insufficient"] (search-v0)
        matrix             {"approve": {"right": n, "wrong": n}, "reject": {…}, "invalid": {…}};
                           of search-v0 {"yes": {"sufficient": n, …}, "no": {…}, "invalid": {…}}
        undecided          verdicts whose truth is not known; they are in no number here
        accuracy           Rate: of the readable verdicts, how many were right
        always             Rate: how many a verifier that always approves (says yes) has right
        precision          {"approve": Rate, "reject": Rate}: of those verdicts, how many were right
        recall             {"approve": Rate, "reject": Rate}: of the right (wrong) answers that got
                           a readable verdict, how many got this one
        invalid            Rate: of all judged verdicts, how many could not be read
        read_as            {"approve": n, "reject": n}: what the invalid ones counted as
        answered           None, or Rate (search-v0): of episodes a "yes" ended, the right answers
    revisions              None, or {"all": R, "by_round": [R, …]}, R being
        round              the draft that revised the one before it: 2, 3, …; None for all
        helped             Rate: of the wrong drafts that were revised, how many became right
        hurt               Rate: of the right drafts that were revised, how many became wrong
        revisions, still_wrong, still_right, undecided    counts
    rounds                 None, or [{…}, …] for round 1, 2, …
        round
        episodes           how many played it
        stop_after         Rate: avg had the team stopped after it (who ended before keeps its
                           answer); mean over questions
        gain               None for round 1, or {"points", "low", "high"}: percentage points more
                           than after the round before, paired by question
        calls, prompt_tokens, response_tokens     spent in it by the whole team
    searches               None, or
        total, mean        searches that were made; per episode
        by_count           [{"searches": 0, "episodes": n, "right": Rate}, …]
    agents                 {"solver_0": {…}, …}
        role, calls, calls_per_episode, longest_s
        seconds_per_call   mean; parallel turns share the time of the slowest
        prompt_tokens, response_tokens            totals; None where the policy reports none
        response_tokens_per_episode               None likewise
        cut_off            turns that ran into the token limit
        invalid            Rate: of its turns, how many could not be read
        statuses           {"missing": n, …}: why

`credit` plays an agent's part again by a reference policy: what the agent is worth.
"""

from benchmarks.diagnostics.diagnose import Diagnosing, Diagnosis, diagnose
from benchmarks.diagnostics.rates import Rate, Tally

__all__ = ["Diagnosing", "Diagnosis", "Rate", "Tally", "diagnose"]
