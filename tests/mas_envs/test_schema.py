"""An episode survives the disk unchanged, or is refused; nothing is silently altered."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs import Episode, Grade, Message, Sampling, ToolResult, Turn, row_rewards
from mas_envs.episodes.schema import decode, encode
from mas_envs.errors import UserError

text = st.text(max_size=20)  # everything but surrogates
finite = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**70), 2**70)
json_values = st.recursive(
    st.none() | st.booleans() | whole | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(lambda x: np.array(x, np.int32))
log_probs = st.lists(st.floats(width=32), max_size=6).map(lambda x: np.array(x, np.float32))
messages = st.lists(st.builds(Message, text, text), max_size=3).map(tuple)
statuses = st.sampled_from(["ok", "missing", "ambiguous", "truncated"])
turns = st.builds(
    Turn,
    index=whole, batch=whole, agent=text, role=text, messages=messages, text=text,
    parse_status=statuses, value=json_values, reward=finite, model=text,
    sampling=st.builds(
        Sampling, temperature=st.floats(0, 1e9), top_p=st.floats(1e-9, 1),
        top_k=st.integers(0, 10**9), max_tokens=st.integers(1, 10**9),
    ),
    seed=st.integers(0, 2**63 - 1), template=text, finish_reason=text,
    versions=st.lists(st.tuples(whole, whole), max_size=3).map(tuple),
    prompt_tokens=whole, response_tokens=whole, prompt_ids=st.none() | ids, ids=st.none() | ids,
    log_probs=st.none() | log_probs, seconds=finite,
)  # fmt: skip
tools = st.builds(
    ToolResult,
    index=whole,
    batch=whole,
    tool=text,
    args=objects,
    result=json_values,
    seconds=finite,
)
grades = st.builds(
    Grade, correct=st.none() | st.booleans(), answer=st.none() | text, reason=text, grader=text,
    status=st.sampled_from(["ok", "no_answer", "truncated", "unparseable", "limit", "error"]),
)  # fmt: skip
episodes = st.builds(
    Episode,
    env=objects, prompts=text, task=text, question=text, gold=json_values, meta=objects,
    group=whole,
    sample=whole, seed=whole, events=st.lists(turns | tools, max_size=4), reward=finite,
    grade=st.none() | grades, info=objects, status=st.sampled_from(["done", "failed"]), reason=text,
    step=whole, provenance=st.dictionaries(text, text, max_size=2), started=finite, seconds=finite,
)  # fmt: skip

ARRAYS = ("prompt_ids", "ids", "log_probs")


def assert_same(one, other):
    """Equality field by field, arrays bit by bit with their type."""
    assert type(one) is type(other)
    for name in one.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if name == "events":
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                assert_same(x, y)
        elif name in ARRAYS and a is not None:
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
        else:
            assert a == b, name
            assert repr(a) == repr(b), name  # tells 1 from 1.0 and True, 0.0 from -0.0


@given(episodes)
@settings(max_examples=100, deadline=None)
def test_round_trip_of_every_field(episode):
    line = encode(episode)
    assert b"\n" not in line
    assert b"\r" not in line
    again = decode(line)
    assert_same(episode, again)
    assert encode(again) == line
    json.loads(line)  # any JSON reader can read it


def turn(**fields):
    shown = (Message("user", "q"),)
    return Turn(**{"index": 0, "batch": 0, "agent": "a_0", "role": "a", "messages": shown,
                   "text": "t", **fields})  # fmt: skip


def episode(*events, **fields):
    return Episode(**{"env": {}, "prompts": "", "task": "t", "events": list(events), **fields})


def tool(**fields):
    return ToolResult(**{"index": 0, "batch": 0, "tool": "t", "args": {}, **fields})


BAD_VALUES = [math.nan, math.inf, -math.inf, b"bytes", {1: 2}, {"x": [math.nan]}, object(), 1j,
              np.arange(3), {"deep": {"er": np.zeros(2)}}, {1, 2}, lambda: 0]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_VALUES)
@pytest.mark.parametrize(
    "place",
    [
        lambda v: episode(info={"x": v}), lambda v: episode(meta={"x": v}),
        lambda v: episode(gold=v),
        lambda v: episode(env={"x": v}), lambda v: episode(turn(value=v)),
        lambda v: episode(tool(args={"x": v})), lambda v: episode(tool(result=v)),
    ],
    ids=["info", "meta", "gold", "env", "value", "args", "result"],
)  # fmt: skip
def test_what_json_cannot_hold_is_refused(place, bad):
    with pytest.raises(TypeError):
        encode(place(bad))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda v: episode(reward=v), lambda v: episode(seconds=v), lambda v: episode(started=v),
        lambda v: episode(turn(reward=v)), lambda v: episode(turn(seconds=v)),
        lambda v: episode(tool(seconds=v)),
    ],
)  # fmt: skip
def test_numbers_that_are_not_finite_are_refused(place, bad):
    with pytest.raises(TypeError, match="finite"):
        encode(place(bad))


def test_log_probs_survive_even_when_not_finite():
    values = np.array([-np.inf, np.nan, np.inf, -0.0, np.finfo(np.float32).tiny / 8], np.float32)
    again = decode(encode(episode(turn(log_probs=values)))).turns[0].log_probs
    assert again.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "array",
    [np.array([2**31]), np.array([-(2**31) - 1]), np.array([1], np.uint32),
     np.zeros((2, 2), np.int32),
     np.array(3, np.int32), np.array(["x"]), np.array([True]), np.array([1j])],
    ids=repr,
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(array):
    with pytest.raises(TypeError):
        encode(episode(turn(ids=array)))


@pytest.mark.parametrize("array", [np.arange(4), np.arange(8, dtype=np.int32)[::2],
                                   np.arange(4, dtype=">i4"), np.zeros(0, np.int32)],
                         ids=repr)  # fmt: skip
def test_other_layouts_are_stored_by_value(array):
    again = decode(encode(episode(turn(ids=array)))).turns[0].ids
    assert again.dtype == np.int32
    assert again.tolist() == array.tolist()


def test_a_lone_surrogate_is_refused_where_it_was_not_cleaned():
    with pytest.raises(TypeError, match="surrogate"):
        encode(episode(turn(text="\ud800")))
    assert (
        decode(encode(episode(turn(text="\ufffd\x00\u2028")))).turns[0].text == "\ufffd\x00\u2028"
    )


GOOD = encode(episode(turn(ids=np.arange(2, dtype=np.int32))))


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"null", b"[]", b"3", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000, b"{" * 100_000,
        b'{"schema":1}', b'{"schema":null}', b'{"schema":true}', b'{"schema":1.0,"env":{}}',
        GOOD[:-1], GOOD + b"x", GOOD.replace(b'"i4:', b'"i8:'), GOOD.replace(b'"i4:', b'"i4:?'),
        GOOD.replace(b'"i4:AAAA', b'"i4:AAA'), GOOD.replace(b'"index":0', b'"index":"0"'),
        GOOD.replace(b'"kind":"turn"', b'"kind":"turm"'), GOOD.replace(b'"done"', b'"dun"'),
        GOOD.replace(b'"text":"t"', b'"text":null'), GOOD.replace(b'"reward":0.0', b'"reward":NaN'),
        GOOD.replace(b'"text":"t"', b'"text":"\\ud800"'),
    ],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_malformed_lines_are_user_errors(line):
    with pytest.raises(UserError):
        decode(line)


@pytest.mark.parametrize("version", [0, 2, "1", None, -1, 1.5, [1]])
def test_another_schema_is_told(version):
    line = GOOD.replace(b'"schema":1', b'"schema":' + json.dumps(version).encode())
    with pytest.raises(UserError, match=r"schema .* is not 1; read it with"):
        decode(line)


def test_the_schema_of_another_release_is_told_even_when_nothing_else_is_known():
    with pytest.raises(UserError, match="schema 7 is not 1"):
        decode(b'{"conversation": [], "schema": 7}')


def test_row_rewards():
    team = episode(turn(reward=-0.25), tool(), turn(), reward=1.0)
    assert row_rewards(team) == [0.75, 1.0]
    assert len(team.turns) == 2


def test_defaults_are_not_shared():
    one, other = episode(), episode()
    one.info["x"] = one.meta["x"] = 1
    one.events.append(turn())
    assert other.info == other.meta == {}
    assert other.events == []


@pytest.mark.parametrize(
    "fields",
    [{"temperature": float("nan")}, {"temperature": -1}, {"temperature": float("inf")},
     {"temperature": "0.5"}, {"temperature": None}, {"top_p": 0}, {"top_p": 1.1},
     {"top_p": np.float64(0.5)}, {"top_k": -1}, {"top_k": True}, {"max_tokens": 0},
     {"max_tokens": 1.5}],
    ids=repr,
)  # fmt: skip
def test_sampling_that_no_engine_could_use_is_refused_when_it_is_made(fields):
    (name,) = fields
    with pytest.raises(UserError, match=name):
        Sampling(**fields)
    with pytest.raises(UserError, match=name):
        msgspec.structs.replace(Sampling(), **fields)
