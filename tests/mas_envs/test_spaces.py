"""Language-sized spaces are cheap, honest about membership, and reproducible."""

from __future__ import annotations

import copy
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mas_envs.spaces import Conversation, Language, conversation


@given(st.text())
def test_any_text_is_contained(text):
    assert Language().contains(text)
    assert Language(len(text)).contains(text)
    assert text == "" or not Language(len(text) - 1).contains(text)


@given(st.one_of(st.none(), st.integers(), st.binary(), st.floats(), st.lists(st.text())))
def test_nothing_else_is(value):
    assert not Language().contains(value)


def test_samples_are_contained_bounded_and_seeded():
    a, b = Language(seed=7), Language(seed=7)
    samples = [a.sample() for _ in range(200)]
    assert samples == [b.sample() for _ in range(200)]
    assert all(type(text) is str and len(text) <= 64 for text in samples)
    assert len(set(samples)) > 150
    tiny = Language(3, seed=0)
    assert all(tiny.contains(tiny.sample()) for _ in range(100))
    assert Language(0).sample() == ""


def test_equality_copy_and_pickle():
    space = Language(10, seed=3)
    assert space == Language(10) != Language(11)
    assert copy.deepcopy(space) == space
    assert pickle.loads(pickle.dumps(space)).sample() == Language(10, seed=3).sample()
    assert not space.is_np_flattenable


def test_conversations_are_samples_of_their_space():
    space = conversation(5)
    space.seed(0)
    for _ in range(20):
        assert space.contains(space.sample())
    good = {"messages": ({"role": "user", "content": "é" * 100_000},), "turn": 5}
    assert space.contains(good)
    assert not space.contains({**good, "turn": 6})
    assert not space.contains({**good, "messages": ({"role": "user", "content": 3},)})
    assert space.contains({**good, "messages": (), "turn": np.int64(0)})


def test_a_conversation_keeps_its_class_when_copied():
    space = conversation(5)
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert type(other) is Conversation
        assert other == space != conversation(6)
        assert "Language" in repr(other)
