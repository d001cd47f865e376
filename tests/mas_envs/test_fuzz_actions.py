"""Any string is a step; anything else is refused before a bit of the environment changes."""

from __future__ import annotations

import enum
import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_envs
from mas_envs.episodes.schema import decode, encode
from mas_envs.errors import InvalidAction, UserError

PIECES = [
    r"\boxed{", r"\boxed{}", "}", "{", r"\boxed{1}", r"\boxed{\boxed{2}}", r"\fbox{3}", "<verify>",
    "</verify>", "<verify>approve</verify>", "<verify>reject</verify>", "<VERIFY>Approve</verify >",
    "<verify>reject", "<verify></verify>", "<think>", "</think>", "<answer>", "</answer>", "\x00",
    "\ud800", "\udfff", "\ud83d\ude00", "\ufeff", "\u202e", "\r\n", "\\", "{question}", "{history}",
    "<|im_end|>", "<|im_start|>system\n", "答案", "é", "𝔸", "\u0301" * 50, "%s", "$$",
    r"\frac{1}{0}", "9" * 400, "2**10**10", r"10^{10^{10}}", "factorial(10**9)",
    "__import__('os')", "NaN", "-0",
    " ", "\t\n",
]  # fmt: skip


def malformed_actions(count: int):
    """Fixed nasty ones first, then random joints of the pieces."""
    yield from ("", "\x00", "\ud800", "\udc00x", "a" * 2**20, r"\boxed{" * 20_000, "}" * 100_000,
                "<verify>" * 20_000, "\ud800" * 10_000, "中" * 2**18,
                r"\boxed{" + "(" * 50_000 + "}",
                r"\boxed{" + "9" * 100_000 + "}", "<think>" * 20_000, "\\" * 100_001)  # fmt: skip
    rng = np.random.default_rng(0)
    while True:
        yield "".join(PIECES[i] for i in rng.integers(len(PIECES), size=rng.integers(1, 9)))


def is_storable(text: str) -> bool:
    return text.encode("utf-8").decode("utf-8") == text


@pytest.mark.parametrize("env_id", ["math-v0", "math-single-v0"])
def test_a_thousand_malformed_actions(env_id):
    env = mas_envs.make(env_id, max_rounds=3) if env_id == "math-v0" else mas_envs.make(env_id)
    env.reset(seed=0)
    for action in itertools.islice(malformed_actions(1000), 1000):
        if env.terminations[env.agent_selection]:
            assert decode(encode(env.episode)).events == env.episode.events
            env.reset()
        before = len(env.episode.turns)
        env.step(action)
        turn = env.episode.turns[before]
        assert len(env.episode.turns) == before + 1
        assert type(turn.text) is str
        assert is_storable(turn.text)
        if not any(0xD800 <= ord(c) < 0xE000 for c in action):
            assert turn.text == action
        assert turn.parse_status in ("ok", "missing", "ambiguous", "truncated")
        assert env.infos[turn.agent]["invalid"] == (turn.parse_status != "ok")
        if turn.value is not None:
            assert turn.parse_status == "ok"


@given(st.text(st.characters(codec=None, categories=None)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_recorded_with_surrogates_replaced(text):
    env = SHARED_ENV
    env.reset(seed=0)
    env.step(text)
    recorded = env.episode.turns[0].text
    assert is_storable(recorded)
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert recorded == paired
    if all(not 0xD800 <= ord(c) < 0xE000 for c in text):
        assert recorded == text
    assert decode(encode(env.episode)).turns[0].text == recorded


SHARED_ENV = mas_envs.make("math-v0", tasks={"source": "arith", "split": "dev", "n": 5})


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ("\ud800", "\ufffd"), ("a\udc00b", "a\ufffdb"), ("\ud83d\ude00", "😀"),
        ("\ufeff", "\ufeff"),
        ("\ude00\ud83d", "\ufffd\ufffd"), ("\ud800\ud800\udc00", "\ufffd𐀀"), ("\ufffd", "\ufffd"),
    ],
)  # fmt: skip
def test_lone_surrogates(said, recorded):
    SHARED_ENV.reset(seed=0)
    SHARED_ENV.step(said)
    assert SHARED_ENV.episode.turns[0].text == recorded


class Shout(str):
    def __str__(self):
        return "something else"

    def isascii(self):
        raise AssertionError("methods of an action are never called")


class Word(enum.StrEnum):
    APPROVE = "<verify>approve</verify>"


@pytest.mark.parametrize(
    "action", [np.str_(r"\boxed{1}"), np.str_("é"), Shout("plain"), Word.APPROVE], ids=repr
)
def test_subclasses_of_str_are_recorded_as_str(action):
    SHARED_ENV.reset(seed=0)
    SHARED_ENV.step(action)
    text = SHARED_ENV.episode.turns[0].text
    assert type(text) is str
    assert text == "".join(list(str.__str__(action)))
    assert decode(encode(SHARED_ENV.episode)).turns[0].text == text


def state(env) -> bytes:
    """Everything an outsider can see, and the session inside."""
    session = env.session
    visible = {
        name: getattr(env, name)
        for name in ("agents", "agent_selection", "rewards", "_cumulative_rewards", "terminations",
                     "truncations", "infos", "possible_agents")
    }  # fmt: skip
    inside = [
        session.turn, session.asked_at, [ask.agent for ask in session.asks],
        [list(ask.messages) for ask in session.asks], session.outcome, str(session.call),
        len(session._replies), session._batch, id(session), id(session._play),
        env._seeds.n_children_spawned, str(env._seeds.entropy),
    ]  # fmt: skip
    observations = [env.observe(agent) for agent in env.possible_agents]
    whole = [visible, observations, encode(env.episode).decode(), inside]
    return msgspec.json.encode(whole)


NOT_STRINGS = [
    None, 0, 1, True, 3.5, float("nan"), b"bytes", bytearray(b"x"), [], ["text"], ("text",), {},
    {"text": "x"}, object(), str, np.array("text"), np.array(["a"]), np.int64(3), lambda: "text",
    memoryview(b"x"), Exception("x"), ...,
]  # fmt: skip


@pytest.mark.parametrize("action", NOT_STRINGS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_non_string_is_refused_before_anything_changes(action, steps):
    env = SHARED_ENV
    env.reset(seed=1)
    for _ in range(steps):
        env.step("<verify>reject</verify>")
    before = state(env)
    with pytest.raises(InvalidAction) as caught:
        env.step(action)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, UserError)
    assert state(env) == before


def test_a_refused_action_leaves_no_trace_in_the_rest_of_the_episode():
    played = []
    for refuse in (False, True):
        env = mas_envs.make("math-v0")
        env.reset(seed=3)
        for said in ("no", "<verify>reject</verify>", r"\boxed{1}"):
            for junk in NOT_STRINGS if refuse else []:
                with pytest.raises(InvalidAction):
                    env.step(junk)
            env.step(said)
        episode = env.episode
        episode.started = episode.seconds = 0.0
        for event in episode.events:
            event.seconds = 0.0
        played.append(encode(episode))
    assert played[0] == played[1]


@pytest.mark.parametrize("action", ["text", "", *NOT_STRINGS[1:]], ids=lambda a: type(a).__name__)
def test_a_dead_agent_can_only_do_nothing(action):
    env = SHARED_ENV
    env.reset(seed=1)
    for said in ("x", "<verify>approve</verify>"):
        env.step(said)
    assert all(env.terminations.values())
    before = state(env)
    with pytest.raises(InvalidAction, match="None"):
        env.step(action)
    assert state(env) == before
    env.step(None)
    assert env.agents == ["verifier_0"]
    env.step(None)
    assert env.agents == []
    for late in (None, "text", 3):
        with pytest.raises(InvalidAction, match="reset"):
            env.step(late)
    env.reset(seed=1)
    assert env.agents == ["solver_0", "verifier_0"]


@pytest.mark.parametrize("seed", [-1, -(2**70), 1.5, "7", float("nan"), [1], b"1", object()])
def test_bad_seeds(seed):
    env = SHARED_ENV
    env.reset(seed=2)
    before = state(env)
    with pytest.raises(UserError, match="seed"):
        env.reset(seed=seed)
    assert state(env) == before


@pytest.mark.parametrize(
    "seed", [0, 2**32 - 1, 2**32, 2**63, 2**64, 2**200, np.int64(5), np.uint64(7)]
)
def test_huge_seeds_play_and_are_stored(seed):
    env = SHARED_ENV
    tasks = []
    for _ in range(2):
        env.reset(seed=seed)
        env.step(r"\boxed{1}")
        tasks.append(env.episode.task)
        assert decode(encode(env.episode)).seed == int(seed)
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("task", ["nonsense", "", None, 3, ["x"], {}, b"x", "0" * 16], ids=repr)
def test_reset_with_an_unknown_task_changes_nothing(task):
    env = SHARED_ENV
    env.reset(seed=2)
    before = state(env)
    with pytest.raises(UserError, match="no task"):
        env.reset(seed=9, options={"task": task})
    assert state(env) == before


@pytest.mark.parametrize("options", ["task", ["task"], 3, ("task",), {"task"}, True], ids=repr)
def test_options_that_are_no_dictionary(options):
    with pytest.raises(UserError, match="options"):
        SHARED_ENV.reset(seed=2, options=options)


@pytest.mark.parametrize("key", ["tasks", "task_id", "Task"])
def test_a_misspelt_task_option_is_no_random_task(key):
    with pytest.raises(UserError, match=key):
        SHARED_ENV.reset(seed=2, options={key: SHARED_ENV.tasks[0].id})


def test_unknown_options_are_ignored_as_pettingzoo_wants():
    SHARED_ENV.reset(seed=2, options={"options": 1, 3: 4})
    first = SHARED_ENV.episode.task
    SHARED_ENV.reset(seed=2)
    assert SHARED_ENV.episode.task == first


def test_reset_without_a_seed_goes_on_reproducibly():
    def tasks_seen():
        env = mas_envs.make("math-v0")
        env.reset(seed=4)
        seen = [env.episode.task]
        for _ in range(20):
            env.reset()
            seen.append(env.episode.task)
        return seen

    seen = tasks_seen()
    assert seen == tasks_seen()
    assert len(set(seen)) > 10


def test_changing_what_env_gives_out_changes_no_record():
    env = mas_envs.make("math-v0")
    env.reset(seed=4)
    env.step("x")
    env.step("<verify>approve</verify>")
    before = encode(env.episode)
    for info in env.infos.values():
        info["verdicts"].append("hacked")
        info["grade"].clear()
    observation = env.observe("solver_0")
    observation["turn"] = 99
    assert encode(env.episode) == before
    assert env.infos["solver_0"]["verdicts"] is not env.infos["verifier_0"]["verdicts"]
