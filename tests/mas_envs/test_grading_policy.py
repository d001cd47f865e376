"""Policies of grade_math: each option in each setting, the presets, and how they are named."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs.errors import UnknownName, UserError
from mas_envs.grading import MathPolicy, grade_math, grade_math_here, math_policy
from mas_envs.grading.policy import DEFAULT, DRMAS, PRESETS, STRICT, policy_argument
from mas_envs.tools import call_now, math_grader
from tests.mas_envs.env_cases import ARITH


def is_right(answer: str, gold: str, policy: Any) -> bool | None:
    return grade_math(f"So the answer is $\\boxed{{{answer}}}$.", gold, policy).correct


# ---- every option, every setting -----------------------------------------------------------------

# gold, answer, and the settings under which it is right
PERCENT = [
    ("28", r"28\%", {"either", "number"}),
    ("0.28", r"28\%", {"either", "value"}),
    (r"\frac{7}{25}", "28 percent", {"either", "value"}),
    (r"28\%", "28", {"either", "number"}),
    (r"28\%", "0.28", {"either", "value"}),
    (r"28\%", "7/25", {"either", "value"}),
    (r"28\%", "28%", {"either", "value", "number"}),
    ("0.28", r"0.28\%", {"number"}),
    ("(0.1, 0.5)", r"(10\%, 50\%)", {"either", "value"}),
    ("28", r"2800\%", {"either", "value"}),
    ("28", r"29\%", set()),
]
UNITS = [
    (r"5 \text{ cm}", "5 cm", {"optional", "required", "ignored"}),
    (r"5 \text{ cm}", "5", {"optional", "ignored"}),
    ("5", r"5 \text{ apples}", {"optional", "ignored"}),
    (r"5 \text{ cm}", "50 mm", {"optional", "required"}),
    (r"5 \text{ cm}", "5 m", {"ignored"}),
    (r"5 \text{ cm}", r"5 \text{ cm}^2", {"ignored"}),
    ("90", r"90^\circ", {"optional", "ignored"}),
    (r"\$7.50", "7.5", {"optional", "ignored"}),
    (r"\$7.50", "750 cents", {"optional", "required"}),
    ("5", "5 units", {"optional", "required", "ignored"}),
    (r"1 \text{ cm}, 2 \text{ cm}", "1 cm, 2", {"optional", "ignored"}),
    (r"5 \text{ cm}", "6 cm", set()),
]
ROUNDING = [
    ("0.666667", "2/3", {"gold", 0.01}),
    ("1/3", "0.3333333333", {"gold", 0.01}),
    ("1/3", "0.333", {0.01}),
    (r"\sqrt{2}", "1.41", {0.01}),
    ("1.414", r"\sqrt{2}", {0.01}),
    (r"\sqrt{2}", "1.43", set()),
    ("4.5e33", r"4.49 \times 10^{33}", {0.01}),
    ("200", "201.0", {0.01}),
    ("200", "201", set()),
    ("1/3", "334/1000", set()),
    ("0", "0.001", set()),
    ("2.50", "2.5", {"gold", "exact", 0.01}),
    ("0.25", "1/4", {"gold", "exact", 0.01}),
    ("(0.5, 3)", "(0.501, 3)", {0.01}),
    ("2.5", "-2.5", set()),
]
FRACTIONS = [
    (r"\frac{1}{2}", r"\frac{2}{4}", {"any"}),
    ("0.5", "2/4", {"any"}),
    (r"-\frac{1}{2}", r"\frac{-2}{4}", {"any"}),
    ("3", "6/2", {"any"}),
    ("(1/2, 3)", "(2/4, 3)", {"any"}),
    ("(0, 1/2]", "(0, 2/4]", {"any"}),
    ("x = 1/2", "x = 2/4 = 1/2", {"any", "reduced"}),
    ("x = 1/2", "x = 1/2 = 2/4", {"any"}),
    (r"\frac{1}{2} \text{ cm}", r"\frac{2}{4} \text{ cm}", {"any"}),
    (r"\frac{1}{2}", r"\frac12", {"any", "reduced"}),
    ("2/4", r"\frac{2}{4}", {"any", "reduced"}),
    ("2/4", "1/2", {"any", "reduced"}),
    ("2/4", "3/6", {"any"}),
    (r"\frac{\pi}{2}", r"\frac{2\pi}{4}", {"any", "reduced"}),
    ("1/2", "2/3", set()),
]
ARITHMETIC = [
    ("1000", "10^3", {"any"}),
    ("3", "6/2", {"any"}),
    ("120", "5!", {"any"}),
    ("7", "2+5", {"any"}),
    ("1/2", "1/4 + 1/4", {"any"}),
    ("0.125", "2^{-3}", {"any"}),
    ("1", r"\int_0^1 2x\,dx", {"any"}),  # math-verify's
    ("2000", r"2 \times 10^3", {"any"}),
    ("2e3", r"2 \times 10^{3}", {"any", "done"}),
    ("2e3", "2000", {"any", "done"}),
    ("1000", "1,000.0", {"any", "done"}),
    ("-3", "- 3", {"any", "done"}),
    ("0.5", "1/2", {"any", "done"}),
    ("3/2", r"1\frac{1}{2}", {"any", "done"}),
    ("7", r"7 \text{ apples}", {"any", "done"}),
    ("7", "x = 2 + 5 = 7", {"any", "done"}),
    ("7", "x = 2 + 5", {"any"}),
    ("10^3", "1000", {"any", "done"}),
    (r"6\pi", r"2 \cdot 3\pi", {"any", "done"}),
    ("3", "6/3", set()),
]
ORDER = [
    ("1, 2", "2, 1", {"any"}),
    (r"\{1, 2\}", r"\{2, 1\}", {"any"}),
    (r"\{1, 2\}", "1, 2", {"any", "kept"}),
    ("1, 2", "1 and 2", {"any", "kept"}),
    ("x = 1, y = 2", "y = 2, x = 1", {"any"}),
    ("x = 1, y = 2", "1, 2", {"any", "kept"}),
    ("(1, 2)", "(2, 1)", set()),
    (r"(0,1) \cup (2,3)", r"(2,3) \cup (0,1)", {"any", "kept"}),
    ("1, 2", "1, 3", set()),
]
TABLES = {
    "percent": (("either", "value", "number"), PERCENT),
    "units": (("optional", "required", "ignored"), UNITS),
    "rounding": (("gold", "exact", 0.01), ROUNDING),
    "fractions": (("any", "reduced"), FRACTIONS),
    "arithmetic": (("any", "done"), ARITHMETIC),
    "order": (("any", "kept"), ORDER),
}
CASES = [
    (option, setting, gold, answer, setting in right)
    for option, (settings, table) in TABLES.items()
    for setting, (gold, answer, right) in itertools.product(settings, table)
]


@pytest.mark.parametrize(("option", "setting", "gold", "answer", "expected"), CASES)
def test_an_option(option: str, setting: Any, gold: str, answer: str, expected: bool) -> None:
    assert is_right(answer, gold, {option: setting}) is expected


def test_the_tables_have_every_option_and_its_default_first() -> None:
    assert {name: settings[0] for name, (settings, _) in TABLES.items()} == msgspec.structs.asdict(
        DEFAULT
    )


@pytest.mark.parametrize("tolerance", [0, 0.0, 1e-3, 0.5])
def test_the_tolerance_is_of_the_gold_and_reaches_just_so_far(tolerance: float) -> None:
    for gold in (8.0, -8.0):
        edge = gold * (1 + tolerance)
        assert is_right(f"{edge!r}", f"{gold}", {"rounding": tolerance})
        assert not is_right(f"{edge * 1.001:.12f}", f"{gold}", {"rounding": tolerance})


# ---- presets -------------------------------------------------------------------------------------

# gold, answer, right under the default, strict, drmas
PRESET_CASES = [
    ("1/2", "0.5", True, True, True),
    ("1/2", "2/4", True, False, False),
    ("1000", "1,000", True, True, True),
    ("1000", "10^3", True, False, False),
    ("28", r"28\%", True, False, True),
    ("0.28", r"28\%", True, True, False),
    (r"5 \text{ cm}", "5", True, False, True),
    (r"5 \text{ cm}", "5 kg", False, False, True),
    ("1, 2", "2, 1", True, True, False),
    ("(1, 2)", "(2, 1)", False, False, False),
    ("1/3", "0.3333333333", True, False, False),
    ("x+1", "1+x", True, True, True),
    ("5", "6", False, False, False),
    # What the reference gets wrong is not copied.
    ("month", "", False, False, False),
    ("5", r"5 \text{ or any other number}", False, False, False),
    ("12345678901234567890", "12345678901234567891", False, False, False),
    ("1e-8", "2e-8", False, False, False),
    ("7=11a+c", "11a+c", False, False, False),
    ("1/7", "9**9**9**9", False, False, False),
]


@pytest.mark.parametrize(("gold", "answer", "default", "strict", "drmas"), PRESET_CASES)
def test_the_presets(gold: str, answer: str, default: bool, strict: bool, drmas: bool) -> None:
    found = [is_right(answer, gold, preset) for preset in ("default", "strict", "drmas")]
    assert found == [default, strict, drmas]
    assert found == [is_right(answer, gold, preset) for preset in (DEFAULT, STRICT, DRMAS)]


# Few numbers in many spellings, so that two of them are often equal.
_NUMBERS = st.sampled_from([
    "3", "3.0", "6/2", "2+1", r"\frac{6}{2}", r"\text{three}", "1/2", "2/4", r"\frac12", "0.5",
    "50", "0.50", r"1\frac{1}{2}", "3/2", "1.5", "100", "10^2", "1e2", r"1 \times 10^2", "1/3",
    "2/3", "0.3333333333", "0.666667", r"\sqrt{2}", "1.41421356237", r"\frac{2}{\sqrt{2}}",
    "x+1", "1+x", "-3", "(3)", "3!", "6", "0", r"\pi", r"\pm 3",
])  # fmt: skip
_QUANTITIES = st.tuples(
    _NUMBERS, st.sampled_from(["", "", "", r"\%", " cm", r" \text{ mm}", r"^\circ", " units"])
).map("".join)
_ANSWERS = st.one_of(
    _QUANTITIES,
    st.lists(_QUANTITIES, min_size=1, max_size=3).map(", ".join),
    st.lists(_QUANTITIES, min_size=2, max_size=2).map(lambda p: f"({p[0]}, {p[1]})"),
    st.lists(_QUANTITIES, min_size=1, max_size=2).map(lambda p: f"\\{{{', '.join(p)}\\}}"),
    _QUANTITIES.map("x = {}".format),
)


@given(_ANSWERS, _ANSWERS)
def test_strict_accepts_only_what_the_default_accepts(gold: str, answer: str) -> None:
    if is_right(answer, gold, "strict"):
        assert is_right(answer, gold, "default")


@given(_ANSWERS, st.sampled_from(sorted(PRESETS)))
def test_the_gold_is_right_under_every_preset(gold: str, preset: str) -> None:
    assert is_right(gold, gold, preset)


@given(_QUANTITIES)
def test_strict_takes_each_of_its_own_canonical_answers(answer: str) -> None:
    """What strict says of two answers does not depend on spaces."""
    assert is_right(f"  {answer} ", answer, "strict")


# ---- naming a policy -----------------------------------------------------------------------------


def test_a_policy_is_a_preset_a_mapping_or_itself() -> None:
    assert {name: math_policy(name) for name in PRESETS} == PRESETS
    assert math_policy({}) == MathPolicy() == DEFAULT
    assert math_policy({"units": "required"}) == MathPolicy(units="required")
    assert math_policy(STRICT) is STRICT
    mixed = math_policy({"preset": "drmas", "units": "required"})
    assert mixed == msgspec.structs.replace(DRMAS, units="required")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("strct", "unknown preset of grading 'strct'; did you mean 'strict'"),
        ({"preset": "lax"}, "unknown preset of grading 'lax'; known: default, drmas, strict"),
        ({"unit": "required"}, "unknown option of grading 'unit'; did you mean 'units'"),
        ({1: 2}, "unknown option of grading '1'"),
    ],
)
def test_names_that_do_not_exist(value: Any, told: str) -> None:
    with pytest.raises(UnknownName, match=told):
        math_policy(value)


BAD = [
    ({"percent": "both"}, "option percent 'both'; it must be one of 'either', 'value', 'number'"),
    ({"units": None}, "option units None; it must be one of 'optional', 'required', 'ignored'"),
    ({"order": ["any"]}, "option order .'any'.; it must be one of 'any', 'kept'"),
    ({"fractions": True}, "option fractions True"),
    ({"arithmetic": 0}, "option arithmetic 0"),
    *(
        ({"rounding": value}, "option rounding .*'gold', 'exact', or a number of at least 0")
        for value in (1000, 1, -0.1, True, math.nan, math.inf, "0.1", None, 10**400)
    ),
    ({"preset": None}, "preset None; it must be one of 'default', 'strict', 'drmas'"),
    (None, "grading None; give the name of a preset"),
    (0.01, "grading 0.01; give the name of a preset"),
    ([("units", "required")], "grading .*; give the name of a preset"),
]


@pytest.mark.parametrize(("value", "told"), BAD)
def test_mistakes_name_the_option_the_value_and_the_choices(value: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        math_policy(value)
    with pytest.raises(UserError, match=told):
        grade_math("no answer at all", "1", value)
    with pytest.raises(UserError, match=f"{told}|JSON has only finite numbers"):
        mas_envs.make("math-v0", grading=value, tasks=ARITH)


def test_options_are_checked_however_a_policy_is_made() -> None:
    with pytest.raises(UserError, match="option units 'none'"):
        MathPolicy(units="none")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        MathPolicy(unit="required")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        ("default", {}),
        ({}, {}),
        ({"percent": "either"}, {}),
        ("strict", {"policy": "strict"}),
        (DRMAS, {"policy": "drmas"}),
        ({"rounding": 0.5}, {"policy": {"rounding": 0.5}}),
    ],
)
def test_a_call_says_only_what_is_not_the_default(value: Any, argument: dict[str, Any]) -> None:
    assert policy_argument(value) == argument
    assert math_policy(argument.get("policy", "default")) == math_policy(value)


def test_the_tool_takes_a_policy_also_where_another_process_is_asked() -> None:
    hard = {"response": r"\boxed{\int_0^1 2x\,dx}", "gold": "1"}
    done = {**hard, "policy": {"arithmetic": "done"}}
    kept = {**hard, "policy": {"order": "kept"}}
    assert grade_math_here(**kept) is None
    grades = [call_now(math_grader, args) for args in (hard, done, kept)]
    assert [grade["correct"] for grade in grades] == [True, False, True]
