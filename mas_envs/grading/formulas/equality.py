r"""Is the answer the gold? The layers, cheap first, on canonical texts.

`same` tries the text; then the texts as they stand; then without a clause behind them. Texts are
read in turn as digit groups allow (`structure.readings`). For each reading `_same` asks

1. is it the same text?
2. `residues`: where one side has a modulus;
3. `reals`: where one side shows signs of sets and inequalities;
4. `relation_equality`: where one side is an equation, an inequality or a named value;
5. `scalar`: where both sides are one value;
6. `parts`: lists, sets, tuples and matrices, whose parts come back to 1.
"""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

from mas_envs.grading.formulas import matrices, reals, residues, structure
from mas_envs.grading.formulas.clauses import same_parameter, without_clause
from mas_envs.grading.formulas.limits import Unparseable, blamed_on_gold, check_depth, start_work
from mas_envs.grading.formulas.notation import key
from mas_envs.grading.formulas.parts import any_same, same_form
from mas_envs.grading.formulas.relation_equality import same_relation
from mas_envs.grading.formulas.relations import names_apart, relation
from mas_envs.grading.formulas.scalar import same_scalar
from mas_envs.grading.formulas.signs import signs_written_out
from mas_envs.grading.formulas.structure import Form, form
from mas_envs.grading.policy import DEFAULT, MathPolicy


def same(gold: str, answer: str, policy: MathPolicy = DEFAULT) -> bool:
    """Is `answer` equal to `gold`? Both canonical.

    Raises `Unparseable` (one of the two cannot be read: `Unfamiliar` where math-verify may know
    it), `LimitHit` (the answer is too big) or `BadGold` (the gold is).
    """
    if key(gold) == key(answer):
        return True
    start_work()
    blamed_on_gold(lambda: check_depth(gold))
    check_depth(answer)
    g, a = without_clause(gold), without_clause(answer)
    has_clause = (g.text, a.text) != (gold, answer)
    try:
        if _same_as_read(gold, answer, policy):
            return True
    except Unparseable:
        if not has_clause:
            raise
    if not has_clause or (g.domain and a.domain and g.domain != a.domain):
        return False
    if a.parameter and not g.parameter and reals.tells(a.text):
        return False  # 0 < x < 5, x \in \mathbb{Z} is less than (0,5)
    return _same_as_read(g.text, same_parameter(g, a), policy)


def _same_as_read(gold: str, answer: str, policy: MathPolicy) -> bool:
    if _same_decimal_comma(gold, answer):
        return True
    pairs = itertools.product(structure.readings(gold), structure.readings(answer))
    return any_same(pairs, lambda g, a: _same(g, a, policy))


def _same_decimal_comma(gold: str, answer: str) -> bool:
    """`1000,99` for 1000.99, where one of the two leaves no doubt that one decimal is meant."""
    point = r"-?\d+\.\d+"
    comma = r"-?(?![1-9]\d{0,2},\d{3}$)\d+,\d+"  # 27,000 is a thousand times 27.0
    surely = r"-?(?:0|\d{4,}),\d+"  # 58,500 is no 58.5, and 1,5 may be two numbers
    if not (re.fullmatch(point, gold) and re.fullmatch(comma, answer)) and not (
        re.fullmatch(surely, gold) and re.fullmatch(point, answer)
    ):
        return False
    return Fraction(answer.replace(",", ".")) == Fraction(gold.replace(",", "."))


def _same(gold: str, answer: str, policy: MathPolicy) -> bool:
    """The layers of the module, for one reading of each text."""
    if key(gold) == key(answer):
        return True

    def same_part(one: str, other: str, policy: MathPolicy = policy) -> bool:
        return _same(one, other, policy)

    verdict = None
    if "mod" in gold or "mod" in answer:
        verdict = residues.same_residue(gold, answer)
    if verdict is None and (reals.tells(gold) or reals.tells(answer)):
        verdict = reals.same_set(gold, answer, same_part)
    if verdict is not None:
        return verdict
    gold, gold_form = blamed_on_gold(lambda: _read(gold))
    answer, answer_form = _read(answer)
    kinds = {gold_form.kind, answer_form.kind}
    if "list" in kinds:
        gold_form, answer_form = names_apart(gold_form), names_apart(answer_form)
        kinds = {gold_form.kind, answer_form.kind}
    if "relation" in kinds:
        answered = relation(answer, answer_form, is_gold=False)
        return same_relation(relation(gold, gold_form), answered, policy, same_part)
    if kinds == {"scalar"}:
        return same_scalar(gold_form.parts[0], answer_form.parts[0], policy)
    return same_form(gold_form, answer_form, same_part, ordered=policy.order == "kept")


def _read(text: str) -> tuple[str, Form]:
    """The text and its form, out of the braces of a set of one; matrices are worked out."""
    found = signs_written_out(form(text))
    if found.kind == "set" and len(found.parts) == 1:
        text = found.parts[0]
        inner = signs_written_out(form(text))
        if inner.kind != "set" and text != r"\emptyset":  # a set of sets stays one
            found = inner
    return text, matrices.worked_out(text, found)
