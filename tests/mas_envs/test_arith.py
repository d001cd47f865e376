"""Properties of the embedded generator: no leak between splits, right answers, stable output."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import combinations_with_replacement, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UserError
from mas_envs.math.arith import KINDS, LEVELS, SPLITS, Problem, canonical, problems, split_of

SOME = {"levels": (1, 2, 3, 4, 5), "kinds": KINDS, "n": 400}


def numbers_told(problem: Problem) -> list[int]:
    """The operands as a reader of the question finds them (day numbers are not operands)."""
    text = re.sub(r"on day \d+", "", problem.question)
    return [int(number) for number in re.findall(r"\d+", text)]


@given(st.integers(0, 2**32), st.sampled_from([("sum",), ("word",), KINDS]))
@settings(max_examples=25, deadline=None)
def test_no_canonical_form_is_in_two_splits(seed: int, kinds: tuple[str, ...]) -> None:
    forms = {
        split: {
            canonical(numbers_told(problem))
            for problem in problems(split, levels=(1, 2, 3, 4, 5), kinds=kinds, seed=seed, n=600)
        }
        for split in SPLITS
        if split != "dev"
    }
    forms["dev"] = {
        canonical(numbers_told(problem))
        for problem in problems("dev", levels=(2, 3, 4, 5), kinds=kinds, seed=seed, n=300)
    }
    assert len(forms["train"]) == 600 and len(forms["test"]) == 600 and len(forms["dev"]) == 300
    assert not forms["train"] & forms["test"]
    assert not forms["train"] & forms["dev"]
    assert not forms["dev"] & forms["test"]


@given(st.lists(st.integers(1, 999), min_size=1, max_size=5))
@settings(deadline=None)
def test_every_permutation_has_the_same_split(operands: list[int]) -> None:
    assert len({split_of(canonical(order)) for order in permutations(operands)}) == 1


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_follow_from_the_text(split: str, seed: int) -> None:
    for problem in problems(split, seed=seed, **SOME):
        told = numbers_told(problem)
        assert told == problem.meta["operands"]
        assert int(problem.answer) == sum(told)
        count, low, high = LEVELS[problem.meta["level"]]
        assert len(told) == count and low <= min(told) and max(told) <= high
        assert problem.meta["canonical"] == canonical(told)
        assert (problem.meta["kind"] == "sum") == bool(re.fullmatch(r"[\d+]+=\?", problem.question))
        # A reader without our regular expression: Python itself evaluates the bare sums.
        if problem.meta["kind"] == "sum":
            assert eval(problem.question.removesuffix("=?")) == int(problem.answer)


def test_small_levels_are_covered_exactly_once() -> None:
    forms = [p.meta["canonical"] for split in SPLITS for p in problems(split)]
    expected = {
        canonical(form)
        for count in (3, 4, 5)
        for form in combinations_with_replacement(range(1, 10), count)
    }
    assert len(forms) == len(set(forms)) == 165 + 495 + 1287
    assert set(forms) == expected


def test_split_shares_are_as_documented() -> None:
    share = {split: len(problems(split)) / 1947 for split in SPLITS}
    for split, (low, high) in SPLITS.items():
        assert share[split] == pytest.approx(high - low, abs=0.04)


def test_levels_and_kinds_take_turns() -> None:
    found = problems("train", levels=(1, 2, 3), kinds=KINDS, n=120)
    assert [p.meta["level"] for p in found[:6]] == [1, 2, 3, 1, 2, 3]
    for level in (1, 2, 3):
        kinds = [p.meta["kind"] for p in found if p.meta["level"] == level]
        assert kinds == ["sum", "word"] * 20


def test_an_exhausted_level_leaves_its_place() -> None:
    levels = [p.meta["level"] for p in problems("test", n=200)]
    available = sum(p.meta["level"] == 1 for p in problems("test"))
    assert available < 200 / 3
    assert levels.count(1) == available and len(levels) == 200


def test_the_seed_decides_and_repeats() -> None:
    assert problems("train", seed=3, **SOME) == problems("train", seed=3, **SOME)
    assert problems("train", seed=3, **SOME) != problems("train", seed=4, **SOME)


def test_output_is_pinned() -> None:
    """Task ids are content hashes: a change here orphans every stored episode."""
    first = problems("test", levels=(1, 2, 3, 4, 5), kinds=KINDS, n=20)
    text = json.dumps([[p.question, p.answer, p.meta] for p in first])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "48fd76b79660e493"
    assert (
        hashlib.sha256("".join(p.question for p in problems("train")).encode()).hexdigest()[:16]
        == "9c5ef40827518ccd"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "did you mean 'test'"),
        ({"split": "test", "levels": (1, 9)}, "unknown level 9"),
        ({"split": "test", "levels": ()}, "at least one"),
        ({"split": "test", "levels": (1, 1)}, "distinct"),
        ({"split": "test", "kinds": ("sums",)}, "did you mean 'sum'"),
        ({"split": "test", "n": 0}, "at least 1"),
        ({"split": "test", "levels": (1,), "n": 10_000}, "ask for fewer"),
    ],
)
def test_mistakes_are_user_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        problems(**arguments)  # type: ignore[arg-type]
