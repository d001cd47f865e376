"""math-v0 plays the protocol of the paper: who speaks when, what they see, what it earns."""

from __future__ import annotations

import itertools

import pytest

import mas_envs
from mas_envs.errors import BadFile, UnknownName, UserError
from tests.mas_envs.env_cases import play

APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def tiny(**kwargs):
    return mas_envs.make("math-v0", prompts="tiny", **kwargs)


def content(env):
    (message,) = env.observe(env.agent_selection)["messages"]
    assert message["role"] == "user"
    return message["content"]


def test_solver_verifier_solver():
    env = tiny()
    env.reset(seed=0)
    question, gold = env.episode.question, env.episode.gold
    assert content(env) == question
    env.step(r"I say \boxed{0}")
    assert env.agent_selection == "verifier_0"
    assert content(env) == f"{question}\nI say \\boxed{{0}}"
    env.step(REJECT)
    assert env.agent_selection == "solver_0"
    assert content(env) == f"{question}\nnot 0"
    env.step(rf"\boxed{{{gold}}}")
    assert all(env.terminations.values()), "the verifier never sees the last draft allowed"
    episode = env.episode
    assert (episode.reward, episode.grade.correct) == (1.0, True)
    assert episode.info == {"rounds": 2, "verdicts": ["reject"]}
    kinds = [type(event).__name__ for event in episode.events]
    assert kinds == ["Turn", "Turn", "Turn", "ToolResult"]


def test_an_approval_ends_it_with_the_draft_approved():
    env = tiny(max_rounds=5)
    assert play(env, r"\boxed{0}", APPROVE, "never said") == ["solver_0", "verifier_0"]
    assert env.episode.reward == 0.0
    assert env.episode.info == {"rounds": 1, "verdicts": ["approve"]}


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_number_of_rounds(rounds):
    env = tiny(max_rounds=rounds)
    asked = play(env, *itertools.islice(itertools.cycle([r"\boxed{0}", REJECT]), 99))
    assert asked == ["solver_0", "verifier_0"] * (rounds - 1) + ["solver_0"]
    assert env.episode.info["rounds"] == rounds
    assert len(asked) <= env.max_decisions


def test_the_last_draft_counts_not_a_better_earlier_one():
    env = tiny()
    env.reset(seed=0)
    env.step(rf"\boxed{{{env.episode.gold}}}")
    env.step(REJECT)
    env.step("I give up")
    assert env.episode.reward == 0.0
    assert env.episode.grade.status == "no_answer"


MALFORMED = [
    "", "approve", "<verify>maybe</verify>", "<verify>approve", "<verify>reject",
    "<verify></verify>", f"{APPROVE} {REJECT}",
    f"I will not say {APPROVE}. {REJECT}", "<verify>approve</verify",
]  # fmt: skip


@pytest.mark.parametrize("review", MALFORMED)
@pytest.mark.parametrize("reading", ["reject", "approve"])
def test_a_malformed_verdict_is_read_as_the_option_says(review, reading):
    env = tiny(malformed_verdict=reading, invalid_penalty={"verifier": 0.25})
    asked = play(env, r"\boxed{0}", review, r"\boxed{1}")
    assert asked == ["solver_0", "verifier_0", "solver_0"][: 2 + (reading == "reject")]
    assert env.episode.info["verdicts"] == [reading]
    assert env.episode.turns[1].parse_status != "ok"
    assert env.episode.turns[1].reward == -0.25


STATUSES = {
    "missing": ["", "<verify>maybe</verify>"], "ambiguous": [f"{APPROVE} {REJECT}"],
    "truncated": ["<verify>approve", "<think>so"],
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("reading", ["reject", "approve"])
def test_each_malformed_status_may_be_read_in_its_own_way(status, reading):
    other = {"reject": "approve", "approve": "reject"}[reading]
    option = dict.fromkeys(STATUSES, other) | {status: reading}
    for given, reviews in STATUSES.items():
        for review in reviews:
            env = tiny(malformed_verdict=option)
            play(env, r"\boxed{0}", review, r"\boxed{1}")
            assert env.episode.turns[1].parse_status == given
            assert env.episode.info["verdicts"] == [reading if given == status else other]


def test_the_strict_reading_is_the_default_also_of_statuses_left_out():
    assert tiny().malformed_verdict == dict.fromkeys(STATUSES, "reject")
    assert tiny(malformed_verdict={}).malformed_verdict == dict.fromkeys(STATUSES, "reject")
    assert tiny(malformed_verdict={"truncated": "approve"}).malformed_verdict == {
        "missing": "reject", "ambiguous": "reject", "truncated": "approve",
    }  # fmt: skip


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize(
    ("last", "read"), [(APPROVE, "approve"), (REJECT, "reject"), ("", "reject")]
)
def test_a_final_review_changes_nothing_but_is_recorded(rounds, last, read):
    env = tiny(max_rounds=rounds, final_review=True)
    env.reset(seed=0)
    gold = env.episode.gold
    asked = play(env, *[r"\boxed{0}", REJECT] * (rounds - 1), rf"\boxed{{{gold}}}", last)
    assert asked == ["solver_0", "verifier_0"] * rounds
    assert len(asked) == env.max_decisions
    assert env.episode.reward == 1.0
    assert env.episode.info["verdicts"] == ["reject"] * (rounds - 1) + [read]
    assert rf"\boxed{{{gold}}}" in env.episode.turns[-1].messages[-1].content


def test_an_approval_before_the_last_round_is_reviewed_once():
    env = tiny(max_rounds=3, final_review=True)
    assert play(env, r"\boxed{0}", APPROVE, "never said") == ["solver_0", "verifier_0"]


@pytest.mark.parametrize(
    "review", [REJECT, "<VERIFY> Reject </VERIFY>", f"<think>{APPROVE}</think>{REJECT}"]
)
def test_a_well_formed_rejection(review):
    env = tiny(malformed_verdict="approve")
    assert play(env, r"\boxed{0}", review, r"\boxed{1}")[-1] == "solver_0"


def test_thoughts_are_not_shown_to_the_others():
    env = tiny()
    env.reset(seed=0)
    env.step(r"<think>secret \boxed{9}</think>So \boxed{0}")
    assert "secret" not in content(env)
    assert content(env).endswith("\nSo \\boxed{0}")


def test_text_of_the_agents_is_never_read_as_a_template():
    env = mas_envs.make("math-v0")
    env.reset(seed=0)
    env.step(r"{question} {history} {review} {0} %s \boxed{{draft}}")
    env.step(REJECT + "{draft}{round}")
    shown = content(env)
    assert r"{question} {history} {review} {0} %s \boxed{{draft}}" in shown
    assert REJECT + "{draft}{round}" in shown


def test_history_repeats_every_round():
    env = tiny(max_rounds=4)
    env.reset(seed=0)
    for said in (r"\boxed{1}", REJECT, "nothing", REJECT, r"\boxed{3}", REJECT):
        env.step(said)
    assert content(env) == env.episode.question + "\nnot 1\nnot none\nnot 3"


def test_single():
    env = mas_envs.make("math-single-v0")
    env.reset(seed=0)
    assert env.possible_agents == ["solver_0"]
    env.step(rf"\boxed{{{env.episode.gold}}}")
    assert env.episode.reward == 1.0
    assert env.infos["solver_0"]["grade"]["correct"] is True


def test_a_list_of_golds():
    tasks = mas_envs.TaskSet([("x?", ["5", "7"], {})])
    for said, reward in ((r"\boxed{7}", 1.0), (r"\boxed{6}", 0.0)):
        env = mas_envs.make("math-single-v0", tasks=tasks)
        play(env, said)
        assert env.episode.reward == reward


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"max_rounds": 0}, UserError), ({"max_rounds": "2"}, UserError),
        ({"max_rounds": 1.5}, UserError), ({"malformed_verdict": "maybe"}, UserError),
        ({"prompts": "tinny"}, UnknownName), ({"prompts": "nowhere.toml"}, BadFile),
        ({"prompts": "single"}, BadFile), ({"tasks": "arith"}, UserError),
        ({"malformed_verdict": {"mising": "reject"}}, UserError), ({"final_review": 1}, UserError),
        ({"malformed_verdict": {"missing": "no"}}, UserError), ({"compat": "verl"}, UserError),
        ({"malformed_verdict": ["reject"]}, UserError), ({"final_review": "yes"}, UserError),
        ({"malformed_verdict": {("missing",): "reject"}}, UserError),
    ],
    ids=repr,
)  # fmt: skip
def test_bad_arguments(kwargs, error):
    with pytest.raises(error):
        mas_envs.make("math-v0", **kwargs)


@pytest.mark.parametrize(
    "tasks",
    [{"sauce": 1}, {"source": "arit"}, {"split": "trian"}, {"n": -1}, {"levels": [9]}],
    ids=repr,
)
def test_bad_tasks_are_told_when_they_are_loaded(tasks):
    env = mas_envs.make("math-v0", tasks=tasks)
    with pytest.raises(UserError):
        env.reset(seed=0)
