"""Random text: what share our parsers read, what it is drawn from, and that seeds decide it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs import Message, Policy, Request, Sampling, collect
from mas_envs.errors import UserError
from mas_envs.parsing import boxed, tag, verdict
from mas_envs.policies.random_text import FORMS, LONGEST, RandomPolicy, random_action

PARSERS = dict(zip(FORMS, (boxed, verdict, tag("search"), tag("answer")), strict=True))
SEEDS = st.integers(0, 2**63 - 1)


def readings(text, forms=FORMS):
    return [PARSERS[form](text).status for form in forms]


def request(seed, *contents):
    messages = tuple(Message("user", content) for content in contents)
    return Request(agent="a_0", role="a", messages=messages, sampling=Sampling(), seed=seed)


def act(asked, **options):
    return asyncio.run(RandomPolicy(**options).act(asked))


@given(SEEDS, st.lists(st.sampled_from(FORMS), min_size=1, unique=True))
def test_well_formed_text_is_read_in_one_of_the_forms(seed, forms):
    text = random_action(np.random.default_rng(seed), forms=forms, malformed=0.0)
    assert "ok" in readings(text, forms)


@given(SEEDS, st.lists(st.sampled_from(FORMS), min_size=1, unique=True))
def test_malformed_text_is_read_in_none(seed, forms):
    text = random_action(np.random.default_rng(seed), forms=forms, malformed=1.0)
    assert "ok" not in readings(text)


def test_the_share_of_malformed_text():
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.8, 1.0):
        read = sum("ok" in readings(random_action(rng, malformed=share)) for _ in range(2000))
        assert read / 2000 == pytest.approx(1 - share, abs=4 * 0.5 / 2000**0.5)


def test_every_kind_of_text_comes():
    rng = np.random.default_rng(0)
    texts = [random_action(rng) for _ in range(5000)]
    statuses = Counter(status for text in texts for status in readings(text))
    assert set(statuses) == {"ok", "missing", "ambiguous", "truncated"}
    kinds = [
        r"^\s*$", r"[一-鿿]", r"[֐-ۿ]", r"[\x00-\x08]", r"<think>", r"<think>(?!.*</think>)",
        r"<VERIFY>", r"<Search>", r"</answer >", r"<answer>\\boxed\{", r"<search><answer>",
        r"(?s)(<search>.*</search>.*){2}", r"<verify>approve</verify>", r"(?i)<verify>\s*reject",
        r"<answer></answer>", r"^[^<]*</answer>$", r"<answer[^>]*$",
        r"(?s)<think>.*<verify>.*</think>",
    ]  # fmt: skip
    assert [kind for kind in kinds if not any(re.search(kind, text) for text in texts)] == []
    assert LONGEST <= max(map(len, texts)) < 3 * LONGEST


@given(SEEDS, st.text(max_size=200))
def test_the_seed_and_the_messages_decide(seed, content):
    first, again = (act(request(seed, "Where is <search>?", content)) for _ in range(2))
    assert first == again
    assert first.model == "random"


def test_different_seeds_differ():
    assert len({act(request(seed, "q")).text for seed in range(200)}) > 100


def test_words_and_forms_are_those_of_the_messages():
    shown = "Ask <search>words</search> about Zanzibar, Quito or 4711."
    texts = [act(request(seed, "x", shown), malformed=0.0).text for seed in range(300)]
    queries = [tag("search")(text) for text in texts]
    assert {query.status for query in queries} == {"ok"}
    words = set(re.findall(r"\w+", "x " + shown))
    plain = [query.value for query in queries if "<" not in query.value and "\\" not in query.value]
    assert len(plain) > 200
    assert all(set(query.split()) <= words for query in plain)
    assert any("about Zanzibar" in query for query in plain), "words that stand together"
    values = [
        act(request(seed, shown.replace("search", "answer")), malformed=0.0).text
        for seed in range(100)
    ]
    assert "4711" in {tag("answer")(text).value for text in values}


@pytest.mark.parametrize("contents", [(), ("",), ("\x00 \u202e",), ("\ud800",)])
def test_messages_without_words(contents):
    assert {type(act(request(seed, *contents)).text) for seed in range(50)} == {str}


@pytest.mark.parametrize("malformed", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none(malformed):
    with pytest.raises(UserError, match="malformed="):
        RandomPolicy(malformed)


def test_it_plays(virtual):
    assert isinstance(RandomPolicy(), Policy)
    env = mas_envs.make("math-v0")
    played, again = (
        virtual(collect(env, RandomPolicy(), env.tasks[:20], samples=2, concurrency=workers))
        for workers in (1, 16)
    )
    assert {episode.status for episode in played} == {"done"}
    texts = [[turn.text for turn in episode.turns] for episode in played]
    assert texts == [[turn.text for turn in episode.turns] for episode in again]
    statuses = {turn.parse_status for episode in played for turn in episode.turns}
    assert {"ok", "missing", "truncated"} <= statuses


def test_another_seed_plays_otherwise(virtual):
    env = mas_envs.make("math-single-v0")
    one, two = (virtual(collect(env, RandomPolicy(), env.tasks[:20], seed=seed)) for seed in (0, 1))
    assert [e.turns[0].text for e in one] != [e.turns[0].text for e in two]
    assert msgspec.structs.asdict(one[0])["status"] == "done"
