"""More forgeries, one field each: see `forgeries`. All have hashes that fit again."""

import json

import msgspec

from mas_envs.grading import grade_math
from tests.leaderboard.forgeries import (
    forgery,
    grade_call,
    last_draft,
    reviews,
    wrong,
)

# ---- an episode ----------------------------------------------------------------------------------


@forgery
def temperature_of_a_turn(forger):
    last_draft(forger.episodes[0])["sampling"]["temperature"] = 0.1
    return "settings"


@forgery
def longer_answers(forger):
    last_draft(forger.episodes[0])["sampling"]["max_tokens"] *= 8
    return "settings"


@forgery
def meta(forger):
    forger.episodes[0]["meta"]["level"] = 9
    return "questions"


@forgery
def gold_with_an_alternative(forger):
    episode = forger.find(wrong)
    episode["gold"] = [episode["gold"], episode["grade"]["answer"]]
    return "questions"


@forgery
def place_in_the_suite(forger):
    forger.episodes[0]["group"] += 1
    return "questions"


@forgery
def training_step(forger):
    forger.episodes[0]["step"] = 7
    return "settings"


@forgery
def environment_of_one_episode(forger):
    forger.episodes[0]["env"]["kwargs"]["max_rounds"] = 5
    return "settings"


@forgery
def prompts_of_one_episode(forger):
    forger.episodes[0]["prompts"] = "better-v1-0123456789ab"
    return "settings"


@forgery
def prompts_everywhere(forger):
    """Another set that is shipped is declared; what was shown is not what it says."""
    forger.manifest["prompts"] = "mine-v1-0123456789ab"
    for episode in forger.episodes:
        episode["prompts"] = forger.manifest["prompts"]
    return "settings"


@forgery
def origin_of_a_fork(forger):
    forger.episodes[0]["provenance"] = {"fork": "f" * 16, "sample": "0", "decision": "2"}
    return "samples"


@forgery
def another_run(forger):
    forger.episodes[0]["provenance"] = {"run": "0123456789abcdef"}
    return "samples"


@forgery
def reordered_events(forger):
    events = forger.find(reviews)["events"]
    events[0], events[1] = events[1], events[0]
    return "replay"


@forgery
def reordered_and_numbered_again(forger):
    events = forger.find(reviews)["events"]
    events[0], events[1] = events[1], events[0]
    for index, event in enumerate(events):
        event["index"] = index
    return "replay"


@forgery
def number_of_an_event(forger):
    last_draft(forger.episodes[0])["index"] += 10
    return "replay"


@forgery
def asked_in_parallel(forger):
    last_draft(forger.find(reviews))["batch"] = 0
    return "replay"


@forgery
def stopped_at_the_first_draft(forger):
    """The reviewer never spoke, it says; the first draft was graded."""
    episode = forger.find(lambda e: reviews(e) and wrong(e))
    first, call = episode["events"][0], grade_call(episode)
    call.update(index=1, args={**call["args"], "response": first["text"]})
    call["result"] = episode["grade"] = msgspec.to_builtins(
        grade_math(first["text"], episode["gold"])
    )
    episode["reward"] = float(call["result"]["correct"])
    episode["events"] = [first, call]
    return "replay"


@forgery
def failed_then_done(forger):
    """A conversation that the machinery broke off counts as a finished, wrong one."""
    episode = forger.find(reviews)
    del episode["events"][1:]
    episode.update(status="done", reason="", grade=None, reward=0.0)
    return "replay"


@forgery
def still_running(forger):
    forger.episodes[0]["status"] = "running"
    return "samples"


@forgery
def negative_sample(forger):
    forger.episodes[0]["sample"] = -1
    return "samples"


@forgery
def swapped_samples(forger):
    first = forger.episodes[0]
    other = forger.find(lambda e: e["task"] == first["task"] and e["sample"] != first["sample"])
    first["sample"], other["sample"] = other["sample"], first["sample"]
    return "settings"


@forgery
def system_message(forger):
    turn = forger.episodes[0]["events"][0]
    turn["messages"].insert(0, {"role": "system", "content": "You know the answer."})
    return "replay"


@forgery
def role_of_a_message(forger):
    forger.episodes[0]["events"][0]["messages"][0]["role"] = "assistant"
    return "replay"


@forgery
def what_was_read(forger):
    last_draft(forger.episodes[0])["value"] = "12"
    return "replay"


@forgery
def answer_of_the_grade(forger):
    episode = forger.find(wrong)
    episode["grade"]["answer"] = episode["gold"]
    return "grades"


@forgery
def grader_version(forger):
    for grade in (forger.episodes[0]["grade"], grade_call(forger.episodes[0])["result"]):
        grade["grader"] = "math-0"
    return "grades"


@forgery
def grade_undecided(forger):
    """A wrong answer that no grader could decide would leave the mean."""
    episode = forger.find(wrong)
    for grade in (episode["grade"], grade_call(episode)["result"]):
        grade.update(correct=None, status="error", reason="lost")
    return "grades"


@forgery
def grade_removed(forger):
    forger.find(wrong)["grade"] = None
    return "grades"


@forgery
def laxer_grading_of_one_call(forger):
    grade_call(forger.find(wrong))["args"]["policy"] = {"rounding": 0.9}
    return "replay"


@forgery
def graded_text(forger):
    episode = forger.find(wrong)
    grade_call(episode)["args"]["response"] = rf"\boxed{{{episode['gold']}}}"
    return "replay"


@forgery
def penalty_lifted(forger):
    """`invalid_penalty` is declared; the turns were not charged it, or it was not declared so."""
    for env in [forger.manifest["env"], *(episode["env"] for episode in forger.episodes)]:
        env["kwargs"]["invalid_penalty"] = 0.0
    last_draft(forger.episodes[0])["reward"] = -0.25
    return "rewards"


@forgery
def infinite_reward(forger):
    forger.episodes[0]["reward"] = 1e308
    return "rewards"


# ---- the manifest --------------------------------------------------------------------------------


@forgery
def larger_k(forger):
    forger.manifest["k"] = 3
    return "samples"


@forgery
def more_questions(forger):
    forger.manifest["suite"]["rows"] += 1
    return "suite"


@forgery
def high_end_of_the_interval(forger):
    forger.manifest["scores"]["avg@2"]["high"] -= 0.01
    return "scores"


@forgery
def questions_of_a_score(forger):
    forger.manifest["scores"]["avg@2"]["questions"] += 1
    return "scores"


@forgery
def score_left_out(forger):
    del forger.manifest["scores"]["avg@2"]
    return "scores"


@forgery
def best_of_k_as_mean(forger):
    scores = forger.manifest["scores"]
    scores["avg@2"] = scores["pass@2"]
    return "scores"


@forgery
def one_role_left_out(forger):
    del forger.manifest["models"]["verifier"]
    return "settings"


@forgery
def one_model_more(forger):
    forger.manifest["models"]["solver"].append("a-public-model")
    return "settings"


@forgery
def top_p(forger):
    forger.manifest["sampling"]["top_p"] = 0.5
    return "settings"


@forgery
def passages_of_nothing(forger):
    forger.manifest["passages"] = "0" * 64
    return "settings"


@forgery
def argument_that_is_none(forger):
    forger.manifest["env"]["kwargs"]["answers"] = "shown"
    return "settings"


# ---- lines ---------------------------------------------------------------------------------------


@forgery
def two_objects_in_a_line(forger):
    forger.raw = [json.dumps(episode).encode() for episode in forger.episodes]
    forger.raw[0] += b" " + forger.raw.pop(1)
    return "schema"


@forgery
def comment_line(forger):
    forger.raw = [b"# best of 64", *(json.dumps(episode).encode() for episode in forger.episodes)]
    return "samples"


@forgery
def text_that_is_no_text(forger):
    last_draft(forger.episodes[0])["text"] = 12
    return "schema"


@forgery
def whole_number_as_text(forger):
    forger.episodes[0]["sample"] = "0"
    return "schema"
