"""What the team did: hand-made conversations with known counts, and real runs."""

import asyncio
import json
import shutil
from collections import Counter, defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.accounting import Usage
from benchmarks.cli import app
from benchmarks.diagnostics import Tally, diagnose
from benchmarks.diagnostics.rates import ratio_interval
from benchmarks.metrics import interval
from mas_envs import collect, make, read_episodes, write_episodes
from mas_envs.errors import UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.tasks import TaskSet
from tests.end_to_end.test_docs import DOCS, blocks, run_blocks

QUESTIONS = TaskSet([(f"{n}+{n}=?", str(2 * n), {}) for n in range(1, 5)])
SAY = {"a": "<verify>approve</verify>", "r": "<verify>reject</verify>", "x": "hm"}


def play(env, task, script):
    """The episode of that task in which the agents say these things, in order."""
    lines = iter(script)
    policy = ScriptedPolicy(lambda request: next(lines))
    (episode,) = asyncio.run(collect(env, policy, [task], concurrency=1))
    assert next(lines, None) is None, "a line was not spoken"
    return episode


def conversation(task, script, sample=0, **arguments):
    """math-v0's episode of "wrRa…": drafts right (R), wrong (w) or without a box (n); verdicts."""
    env = make("math-v0", tasks=QUESTIONS, **({"max_rounds": 3} | arguments))
    drafts = {"R": rf"\boxed{{{task.answer}}}", "w": r"\boxed{0}", "n": "no idea"}
    found = play(env, task, [(drafts | SAY)[letter] for letter in script])
    return msgspec.structs.replace(found, sample=sample)


SCRIPTS = ["Ra", "wrRa", "RrwrR", "wa", "wxna", "wrwrw", "RrRa", "Rxwa"]


@pytest.fixture(scope="module")
def episodes():
    """Two samples of each of four questions."""
    return [conversation(QUESTIONS[n // 2], script, n % 2) for n, script in enumerate(SCRIPTS)]


def counts(rate):
    return rate.hits, rate.of


def test_the_counts_by_hand(episodes):
    found = diagnose(episodes)
    verdicts = found.verdicts
    assert verdicts.matrix == {
        "approve": {"right": 3, "wrong": 3},  # Ra, wrRa, RrRa; wa, n a, w a
        "reject": {"right": 2, "wrong": 4},
        "invalid": {"right": 1, "wrong": 1},
    }
    assert counts(verdicts.accuracy) == (3 + 4, 12)
    assert counts(verdicts.always) == (5, 12)
    assert counts(verdicts.precision["approve"]) == (3, 6)
    assert counts(verdicts.precision["reject"]) == (4, 6)
    assert counts(verdicts.recall["approve"]) == (3, 5)
    assert counts(verdicts.recall["reject"]) == (4, 7)
    assert counts(verdicts.invalid) == (2, 14)
    assert verdicts.read_as == {"approve": 0, "reject": 2} and verdicts.undecided == 0
    # Second drafts: wR Rw wn ww RR Rw; third ones: wR (of RrwrR) and ww.
    whole, (second, third) = found.revisions.all, found.revisions.by_round
    assert (second.round, third.round, whole.round) == (2, 3, None)
    assert (counts(second.helped), counts(second.hurt)) == ((1, 3), (2, 3))
    assert (counts(third.helped), counts(third.hurt)) == ((1, 2), (0, 0))
    assert (counts(whole.helped), counts(whole.hurt)) == ((2, 5), (2, 3))
    assert (whole.revisions, whole.still_wrong, whole.still_right) == (8, 3, 1)
    first, second, third = found.rounds
    assert [one.episodes for one in found.rounds] == [8, 6, 2]
    assert [one.calls for one in found.rounds] == [16, 12, 2]
    # After round 1 R w R w w w R R; after 2 R R w w w w R w; after 3 R R R w w w R w.
    assert [one.stop_after.value for one in found.rounds] == [50.0, 37.5, 50.0]
    assert first.gain is None and second.gain.points == -12.5 and third.gain.points == 12.5
    assert second.gain.low < -12.5 < second.gain.high
    assert (found.episodes, found.questions, found.searches) == (8, 4, None)
    assert found.not_applicable == {"searches": "nobody searches: math-v0 has solver, verifier"}
    solver, verifier = found.agents["solver_0"], found.agents["verifier_0"]
    assert (solver.calls, verifier.calls) == (16, 14)
    assert counts(solver.invalid) == (1, 16) and solver.statuses == {"missing": 1}
    assert counts(verifier.invalid) == (2, 14) and verifier.calls_per_episode == 14 / 8
    assert solver.response_tokens is None and "no tokens are known" in found.notes[0]


def test_the_last_round_is_the_headline_number(episodes):
    right = defaultdict(list)
    for episode in episodes:
        right[episode.task].append(episode.grade.correct)
    values = [sum(one) / len(one) for one in right.values()]
    last = diagnose(episodes).rounds[-1].stop_after
    assert last.value == 100 * np.mean(values)
    assert (last.low, last.high) == tuple(100 * bound for bound in interval(values))


def test_a_verdict_of_the_last_draft_counts_and_tokens_add_up_by_round():
    episode = conversation(QUESTIONS[0], "wrwrRr", final_review=True)
    for turn in episode.turns:
        turn.prompt_tokens, turn.response_tokens = 10, turn.index + 1
    found = diagnose([episode])
    assert found.verdicts.matrix["reject"] == {"right": 1, "wrong": 2}
    assert [one.response_tokens for one in found.rounds] == [1 + 2, 3 + 4, 5 + 6]
    assert [one.prompt_tokens for one in found.rounds] == [20, 20, 20]
    assert found.agents["verifier_0"].response_tokens == 2 + 4 + 6 and found.notes == []


def test_drafts_are_graded_as_the_environment_grades():
    """By value, as the last draft; and with `compat` by the box that it scores."""
    task = TaskSet([("?", "1/2", {})])[0]
    env = make("math-v0", tasks=TaskSet([("?", "1/2", {})]), max_rounds=2)
    half = [r"\boxed{0.5}", SAY["r"], r"\boxed{7}"]
    assert counts(diagnose([play(env, task, half)]).revisions.all.hurt) == (1, 1)
    compat = make("math-v0", tasks=env.tasks, max_rounds=2, compat="drmas")
    thought = [r"</think>\boxed{\frac12}</think>\boxed{3}", SAY["r"], r"\boxed{7}"]
    assert counts(diagnose([play(env, task, thought)]).revisions.all.hurt) == (0, 0)
    assert counts(diagnose([play(compat, task, thought)]).revisions.all.hurt) == (1, 1)
    other = play(env, task, half)
    other.events[-1].args["response"] = "something else"
    assert "rounds" in diagnose([other]).not_applicable  # who knows how it reads a draft


def test_what_cannot_be_decided_is_counted_apart():
    episode = conversation(QUESTIONS[0], "wrRa")
    unsure = msgspec.structs.replace(episode.grade, correct=None)
    undecided = msgspec.structs.replace(episode, grade=unsure)
    other = msgspec.structs.replace(episode, grade=msgspec.structs.replace(unsure, grader="mine"))
    found = diagnose([undecided])
    assert found.verdicts.undecided == 1 and found.rounds is None
    assert found.revisions.all.undecided == found.revisions.all.revisions == 1
    assert found.revisions.all.helped.value is None
    assert diagnose([other]).verdicts.undecided == 2  # nobody here can grade its first draft
    old = msgspec.structs.replace(episode.grade, grader="math-1")
    assert "graded by math-1" in diagnose([msgspec.structs.replace(episode, grade=old)]).notes[0]


def test_failed_episodes_and_forks_are_left_out(episodes):
    failed = msgspec.structs.replace(episodes[0], status="failed", grade=None)
    fork = msgspec.structs.replace(episodes[0], provenance={"fork": "f"})
    found = diagnose([failed, fork, *episodes])
    assert (found.failed, found.forks) == (1, 1)
    assert {**found.to_json(), "failed": 0, "forks": 0} == diagnose(episodes).to_json()
    with pytest.raises(UserError, match=r"no finished episode.*1 failed, 1 forks"):
        diagnose([failed, fork])


def test_a_diagnosis_counts_finished_episodes_and_a_cost_all_that_were_played(episodes):
    failed = msgspec.structs.replace(episodes[2], status="failed", grade=None)
    usage = Usage()
    for episode in [failed, *episodes]:
        usage.add(episode)
    cost, found = usage.summary(), diagnose([failed, *episodes])
    lost = Counter(turn.agent for turn in failed.turns)
    for agent, used in cost["agents"].items():
        assert used["calls"] == found.agents[agent].calls + lost[agent] > lost[agent] > 0
    assert "failed" in cost["counted"] and "finished episodes only" in found.to_json()["counted"]


# ---- other teams -------------------------------------------------------------------------------


def boxes(*answers):
    return [rf"\boxed{{{answer}}}" for answer in answers]


OTHERS = {
    "math-single-v0": ({}, boxes(2), {"verdicts", "revisions", "searches"}),
    "vote-v0": ({"solvers": 2}, boxes(2, 3), {"verdicts", "revisions", "rounds", "searches"}),
    "debate-v0": ({"rounds": 1}, boxes(2, 3, 2), {"verdicts", "revisions", "rounds", "searches"}),
    "proposer-solver-v0": (
        {"solvers": 2},
        ["<problem>1+1=?</problem>", *boxes(2, 5)],
        {"verdicts", "revisions", "rounds", "searches"},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_teams_get_what_applies(name):
    arguments, script, missing = OTHERS[name]
    env = make(name, tasks=QUESTIONS, **arguments)
    found = diagnose([play(env, QUESTIONS[0], script)])
    assert set(found.not_applicable) == missing
    assert all(name in why or "revised" in why for why in found.not_applicable.values())
    assert sum(agent.calls for agent in found.agents.values()) == len(script)
    shown = found.to_json()
    assert all(shown[part] is None for part in missing)


def test_a_search_team_is_held_against_the_supporting_passages():
    env = make("search-v0", max_turns=3)
    task = next(task for task in env.tasks if len(task.meta["supporting"]) == 1)
    title = task.meta["supporting"][0]
    query = f"<search>{task.question}</search>"
    yes, no = "<verify>yes</verify>", "<verify>no</verify>"
    early = play(env, task, [yes, "<answer>nobody</answer>"])
    late = play(env, task, [no, query, yes, f"<answer>{task.answer}</answer>"])
    assert any(one["id"] == title for one in late.events[2].result), "the search must find it"
    never = play(env, task, [no, query, "?", query, no])
    found = diagnose([early, late, never])
    assert found.verdicts.states == ("sufficient", "insufficient")
    assert found.verdicts.matrix == {
        "yes": {"sufficient": 1, "insufficient": 1},
        "no": {"sufficient": 1, "insufficient": 2},
        "invalid": {"sufficient": 1, "insufficient": 0},
    }
    assert counts(found.verdicts.answered) == (1, 2) and found.verdicts.read_as["no"] == 1
    assert "supporting" in found.verdicts.truth
    assert [(one.searches, one.episodes, counts(one.right)) for one in found.searches.by_count] == [
        (0, 1, (0, 1)), (1, 1, (1, 1)), (2, 1, (0, 1)),
    ]  # fmt: skip
    assert (found.searches.total, found.searches.mean) == (3, 1.0)
    assert set(found.not_applicable) == {"revisions", "rounds"}


def test_without_supporting_passages_a_mention_of_a_gold_is_the_proxy():
    env = make("search-v0", max_turns=2)
    task = next(task for task in env.tasks if len(task.meta["supporting"]) == 1)
    said = [f"<verify>{word}</verify>" for word in ("no", "yes")]
    played = play(env, task, [said[0], "<search>any</search>", said[1], "<answer>x</answer>"])
    search = played.events[2]
    passage = {"id": "1", "title": "", "text": "It was The Anna-Lee, they say.", "score": 1.0}

    def judged(gold, *passages):
        found = msgspec.structs.replace(search, result=list(passages))
        events = [*played.events[:2], found, *played.events[3:]]
        episode = msgspec.structs.replace(played, gold=gold, meta={}, events=events)
        return diagnose([episode]).verdicts

    assert judged(["AnnaLee", "x"], passage).matrix["yes"] == {"sufficient": 1, "insufficient": 0}
    assert judged("Anna", passage).matrix["yes"] == {"sufficient": 0, "insufficient": 1}  # a word
    assert judged("Anna").matrix["no"] == {"sufficient": 0, "insufficient": 1}
    assert judged("yes", passage).undecided == 2 and judged("the", passage).undecided == 2
    assert "gold answer" in judged("Anna", passage).truth


# ---- properties --------------------------------------------------------------------------------

scripts = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(SCRIPTS)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def played():
    return {(n, script): conversation(QUESTIONS[n], script) for n in range(4) for script in SCRIPTS}


@given(scripts, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_totals_add_up_and_the_order_does_not_matter(played, chosen, order):
    episodes = [played[key] for key in chosen]
    found = diagnose(episodes)
    shuffled = list(episodes)
    order.shuffle(shuffled)
    assert diagnose(shuffled).to_json() == found.to_json()
    verdicts = sum("arx".count(letter) for _, script in chosen for letter in script)
    drafts = sum("Rwn".count(letter) for _, script in chosen for letter in script)
    assert sum(sum(row.values()) for row in found.verdicts.matrix.values()) == verdicts
    invalid = sum(found.verdicts.matrix["invalid"].values())
    for rates in (found.verdicts.precision, found.verdicts.recall):
        assert sum(rate.of for rate in rates.values()) == verdicts - invalid
        assert sum(rate.hits for rate in rates.values()) == found.verdicts.accuracy.hits
    revised = found.revisions
    assert (revised.all.revisions if revised else 0) == drafts - len(chosen)
    if revised:
        assert sum(one.revisions for one in revised.by_round) == revised.all.revisions
        parts = (revised.all.helped.of, revised.all.hurt.of, revised.all.undecided)
        assert sum(parts) == revised.all.revisions
        # Each round gains the answers it helped less those it hurt.
        gains = [one.helped.hits - one.hurt.hits for one in revised.by_round]
        hits = [one.stop_after.hits for one in found.rounds]
        assert np.diff(hits).tolist() == gains
    assert found.rounds[-1].stop_after.hits == sum(e.grade.correct for e in episodes)
    assert sum(one.calls for one in found.rounds) == drafts + verdicts
    assert sum(agent.calls for agent in found.agents.values()) == drafts + verdicts
    assert json.loads(json.dumps(found.to_json()))["episodes"] == len(chosen)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(4, 9))
def test_equal_numbers_of_cases_give_the_interval_of_the_mean(hits, cases):
    expected = interval([hit / cases for hit in hits])
    assert ratio_interval(hits, [cases] * len(hits)) == pytest.approx(expected, abs=1e-9)


cells = st.lists(st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
                 min_size=1, max_size=20)  # fmt: skip


@given(cells)
def test_an_interval_contains_its_rate_and_has_a_width(cells):
    tally = Tally(dict(zip(map(str, range(len(cells))), cells, strict=True)))
    rate = tally.rate()
    assert 0 <= rate.low <= rate.value <= rate.high <= 100 and rate.low < rate.high
    flipped = Tally({name: (n - hits, n) for name, (hits, n) in tally.counts.items()}).rate()
    assert flipped.low == pytest.approx(100 - rate.high, abs=1e-6)
    assert flipped.high == pytest.approx(100 - rate.low, abs=1e-6)


@pytest.mark.parametrize("questions", [30, 200])
def test_the_interval_covers_the_rate_when_questions_have_unequal_numbers(questions):
    """Simulated: cases per question from 1 to 16, more of them where the question is harder."""
    rng = np.random.default_rng(5)
    population = rng.beta(0.5, 0.5, 200_000)
    chance = 0.1 + 0.8 * (1 - population)
    numbers = 1 + rng.binomial(15, chance)
    truth = (numbers * population).sum() / numbers.sum()
    covered, runs = 0, 1000
    for _ in range(runs):
        drawn = rng.integers(0, len(population), questions)
        cases = numbers[drawn]
        low, high = ratio_interval(rng.binomial(cases, population[drawn]), cases)
        covered += low <= truth <= high
    assert covered / runs > 0.935  # three standard errors below 95 %


def test_the_interval_holds_where_a_few_questions_have_nearly_all_cases():
    """One question in five has 60 cases and the others one: 94.4 % without their leverage."""
    rng, covered, runs = np.random.default_rng(5), 0, 1000
    for _ in range(runs):
        cases, difficulty = np.where(rng.random(30) < 0.2, 60, 1), rng.beta(0.5, 0.5, 30)
        low, high = ratio_interval(rng.binomial(cases, difficulty), cases)
        covered += low <= 0.5 <= high
    assert covered / runs >= 0.95


# ---- the command -------------------------------------------------------------------------------


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "160"})


def test_a_real_run_is_diagnosed(tmp_path):
    """The adder's verifier is right with chance .8; every number counted again from the texts."""
    out, file = tmp_path / "run", tmp_path / "found.json"
    played = bench("run", "arith", "--policy", "scripted:adder", "-k", 4, "--limit", 20,
                   "--env-arg", "max_rounds=3", "--out", out)  # fmt: skip
    assert played.exit_code == 0, played.output
    result = bench("diagnose", out, "--json", file)
    assert result.exit_code == 0, result.output
    matrix = Counter()
    for episode in read_episodes(out / "episodes"):
        total = sum(map(int, episode.question.removesuffix("=?").split("+")))
        for draft, review in zip(episode.turns[::2], episode.turns[1::2], strict=False):
            state = "right" if f"{{{total}}}" in draft.text else "wrong"
            matrix["approve" if "approve" in review.text else "reject", state] += 1
    found = json.loads(file.read_text())
    assert {(verdict, state): count for verdict, row in found["verdicts"]["matrix"].items()
            for state, count in row.items() if count} == dict(matrix)  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())["avg@4"]
    last = found["rounds"][-1]["stop_after"]
    assert [last[key] for key in ("value", "low", "high")] == pytest.approx(
        [summary[key] for key in ("value", "low", "high")]
    )
    for expected in ("approve", "Had the team stopped", f"{last['value']:.1f} %", "verifier_0"):
        assert expected in result.stdout
    assert "nobody searches" in result.stderr and "graded as the environment" in result.stderr
    assert "the run has" not in result.stderr
    episodes = list(read_episodes(out / "episodes"))
    shutil.rmtree(out / "episodes")
    write_episodes(out / "episodes", episodes[:75])
    assert "the run has 75 of 80 samples" in bench("diagnose", out).stderr


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    result = bench("diagnose", tmp_path)
    assert result.exit_code == 2 and "run.json" in result.stderr
    result = bench("diagnose", tmp_path, "--json", tmp_path / "none" / "x.json")
    assert result.exit_code == 2 and "its folder does not exist" in result.stderr


def test_its_section_of_the_page_prints_what_it_shows(tmp_path):
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    section = page.partition("\n## What the team did\n")[2].partition("\n## ")[0]
    assert [language for language, _ in blocks(section)] == ["sh", "text"] * 2
    run_blocks(section, tmp_path)
    assert json.loads((tmp_path / "team.json").read_text())["rounds"][2]["gain"]["points"] > 0
