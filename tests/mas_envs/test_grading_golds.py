"""Every gold of six benchmark files against itself, its neighbours and its common spellings."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UserError
from mas_envs.grading import grade_math
from mas_envs.grading.gold import normal_gold, unread
from mas_envs.parsing import boxed

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FILES = {
    "math500": 500,
    "aime24.qwen25math": 30,
    "aime25.evalreasoning": 30,
    "amc23.qwen25math": 40,
    "minerva_math.qwen25math": 272,
    "olympiadbench.qwen25math": 675,
}
BROKEN = "$t(0,4]$"  # in OlympiadBench; the suite mends it
NUMERAL = re.compile(r"-?\d+(?:\.\d+)?")


def source_golds(name: str) -> list[str]:
    """The golds of a file as they stand there."""
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{name}: the folder of shared data is not here")
    found = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        answer = row.get("answer", row.get("final_answer"))
        if answer is None:
            answer = boxed(row["solution"]).value
        found.append(", ".join(answer) if isinstance(answer, list) else str(answer))
    return found


def verdict(answer: str, gold: str) -> bool | None:
    return grade_math(f"Hence $\\boxed{{{answer}}}$.", gold).correct


@pytest.fixture(scope="module", params=FILES)
def file_golds(request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    """[(as in the file, normal)] of one file."""
    found = source_golds(request.param)
    assert len(found) == FILES[request.param]
    return [(gold, normal_gold(gold)) for gold in found]


def differing(golds: list[str]) -> Iterator[tuple[str, str]]:
    """Each gold and the next one that is another."""
    for place, gold in enumerate(golds):
        following = itertools.chain(golds[place + 1 :], golds[:place])
        other = next((one for one in following if one != gold), None)
        if other is not None and {gold, other} != {"5", "x=5"}:  # the same value in MATH-500
            yield gold, other


def test_every_gold_equals_itself_in_both_spellings(file_golds: list[tuple[str, str]]) -> None:
    for source, gold in file_golds:
        assert normal_gold(gold) == gold
        assert verdict(gold, gold) is True, gold
        assert verdict(source, gold) is True, (source, gold)
        assert verdict(gold, source) is True, (source, gold)


def test_every_gold_differs_from_the_next_in_both_directions(
    file_golds: list[tuple[str, str]],
) -> None:
    for gold, other in differing([normal for _, normal in file_golds]):
        assert verdict(other, gold) is False, (gold, other)
        assert verdict(gold, other) is False, (other, gold)


def test_every_gold_in_common_spellings_equals_itself(file_golds: list[tuple[str, str]]) -> None:
    for _, gold in file_golds:
        spellings = [
            f"${gold}$",
            rf"\({gold}\)",
            rf"\displaystyle {gold}",
            f" {gold} ",
            rf"{gold}\,",
            f"{gold}.",
            rf"\boxed{{{gold}}}",
            re.sub(r"\\[dt]?frac(?![A-Za-z])", r"\\dfrac", gold),
            re.sub(r"\\[dt]?frac(?![A-Za-z])", r"\\tfrac", gold),
            re.sub(r"(?<![\\A-Za-z])-", "−", gold) if r"\text" not in gold else gold,
            re.sub(
                r"(?<!\\left)(?<!\\)\(", r"\\left(", re.sub(r"(?<!\\right)\)", r"\\right)", gold)
            ),
        ]
        if NUMERAL.fullmatch(gold):
            spellings += [rf"\text{{{gold}}}", f"x = {gold}", rf"n={gold}", rf"{{{gold}}}"]
        for spelling in spellings:
            assert verdict(spelling, gold) is True, (spelling, gold)


def test_a_numeric_gold_differs_from_its_neighbour_in_the_last_digit(
    file_golds: list[tuple[str, str]],
) -> None:
    seen = 0
    for _, gold in file_golds:
        mantissa, times, rest = gold.partition(r" \times ")
        if not NUMERAL.fullmatch(mantissa):
            continue
        seen += 1
        last = Decimal(1).scaleb(-len(mantissa.partition(".")[2]))
        for neighbour in (Decimal(mantissa) + last, Decimal(mantissa) - last):
            assert verdict(f"{neighbour}{times}{rest}", gold) is False, (neighbour, gold)
    assert seen >= 0.3 * len(file_golds)


def test_only_one_gold_of_all_files_cannot_be_read(file_golds: list[tuple[str, str]]) -> None:
    for source, gold in file_golds:
        assert (unread(gold) is None) is (source != BROKEN), gold


def test_minerva_golds_in_e_notation_stay_apart() -> None:
    golds = [g for g in source_golds("minerva_math.qwen25math") if re.search(r"\de-?\d", g)]
    assert len(golds) == 58
    assert sum(abs(Decimal(gold)) < Decimal("1e-7") for gold in golds) == 14
    for one, two in itertools.combinations(sorted(set(golds), key=Decimal), 2):
        equal = Decimal(one) == Decimal(two)
        for answer, gold in ((one, two), (two, normal_gold(one))):
            assert verdict(answer, gold) is equal, (answer, gold)
    for gold in golds:
        mantissa, _, exponent = gold.partition("e")
        normal = rf"{mantissa} \times 10^{{{exponent}}}"
        assert normal_gold(gold) == normal
        for answer in (gold, normal, rf"{mantissa}\cdot 10^{{{exponent}}}"):
            assert verdict(answer, gold) is verdict(answer, normal) is True, answer


# ---- normal_gold ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("$2n$", "2n"),
        ("$$ 7 $$", "7"),
        (r"\(2n\)", "2n"),
        (r"\[ 2n \]", "2n"),
        ("$69$,$84$", "69,84"),
        (r"\boxed{7}", "7"),
        (r"$\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        ("5.", "5"),
        (r"\left(0,1\right]", r"\left(0,1\right]"),
        (r"\$18.90", r"\$18.90"),
        ("(1,\n 2)", "(1, 2)"),
        (r"5\ ", "5"),
        ("4.5e33", r"4.5 \times 10^{33}"),
        ("4.5E+33", r"4.5 \times 10^{33}"),
        ("-1e-07", r"-1 \times 10^{-7}"),
        ("(1e-3, 2)", r"(1 \times 10^{-3}, 2)"),
        (r"2e3 \text{ m}", r"2 \times 10^{3} \text{ m}"),
        ("2e", "2e"),
        ("x2e5", "x2e5"),
        ("1e5_{16}", "1e5_{16}"),
        ("np.arcsin(10/13)", r"\arcsin(10/13)"),
        ("-1./3", "-1/3"),
        ("025", "025"),  # its suite says that it is an integer
    ],
)
def test_normal_spelling(text: str, gold: str) -> None:
    assert normal_gold(text) == gold
    assert normal_gold(gold) == gold


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; give"),
        ("$ $", "is empty"),
        ("nan", "missing value"),
        ("None", "missing value"),
        ("\\quad", r"\\quad"),
        ("1" * 4001, "4001 characters; give at most 4000"),
        ("\frac{1}{2}", r"control character '\\x0c'.*; in JSON write"),
        ("\tfrac{1}{2}", r"control character '\\t'"),
        ("x \neq 2", r"control character '\\n'"),
        ("1\0", "control character"),
        (r"\frac{1}{2", "brace without a partner"),
        ("2}", "brace without a partner"),
        ("5 or 6", "leaves open whether"),
        (r"5 \text{ or } 6", "leaves open whether"),
        ("probably 5", "is in doubt"),
        ("5?", "is in doubt"),
        (r"so \boxed{5}", "among other text"),
        ("10^{9^{9^9}}", "too much"),
        ("1e99999999", "too much|too large"),
    ],
)
def test_a_gold_that_cannot_be_graded_fairly_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        normal_gold(text)


@given(
    st.lists(
        st.sampled_from(
            ["$", "$$", "\\(", "\\)", "\\[", "\\]", "\\boxed{", "}", "{", ".", ",", ";", " ", "\\ ",
             "\\", "5", "1.5e3", "2E-7", ".5e1", "x", "-", "\\$", "np.sin(", ")", "1./3", "^", "_",
             "\\text{ m}", "\\times", "or", "\\right.", "\n"]
        ),
        max_size=8,
    ).map("".join)
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_normalising_twice_is_normalising_once(text: str) -> None:
    try:
        gold = normal_gold(text)
    except UserError:
        return
    assert normal_gold(gold) == gold
    assert verdict(gold, gold) is True


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.integers(-300, 300))
@settings(max_examples=100, deadline=None)
def test_e_notation_keeps_the_value(mantissa: Decimal, exponent: int) -> None:
    text = f"{mantissa:f}e{exponent}"
    gold = normal_gold(text)
    assert "e" not in gold.replace(r"\times", "")
    assert verdict(text, gold) is True
    assert verdict(gold, text) is True
