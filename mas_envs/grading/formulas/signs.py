r"""`\pm` and `\mp` written out as the cases they stand for."""

from __future__ import annotations

import itertools
import re

from mas_envs.grading.formulas.limits import LimitHit
from mas_envs.grading.formulas.structure import Form

_MAX_SIGNS = 3  # in one part: 2^3 cases


def signs_written_out(found: Form) -> Form:
    r"""The form without `\pm`: a scalar becomes a list of two, a member two members."""
    if not any(r"\pm" in part for part in found.parts) or found.kind in ("relation", "matrix"):
        return found
    if found.kind == "tuple":
        opener, closer = found.marks
        inner = ",".join(found.parts)
        return Form("list", [f"{opener}{case}{closer}" for case in _cases(inner)])
    parts = [case for part in found.parts for case in _cases(part)]
    if parts == found.parts:
        return found
    return Form("list" if found.kind == "scalar" else found.kind, parts)


def _cases(text: str) -> list[str]:
    pieces = re.split(r"\\(pm|mp)(?![A-Za-z])", text)
    signs = pieces[1::2]
    if not signs:
        return [text]
    if len(signs) > _MAX_SIGNS:
        raise LimitHit("too many signs")
    together = "mp" in signs
    choices = (
        [(0,) * len(signs), (1,) * len(signs)]
        if together
        else list(itertools.product((0, 1), repeat=len(signs)))
    )
    return ["".join(_signed(pieces, signs, choice)) for choice in choices]


def _signed(pieces: list[str], signs: list[str], choice: tuple[int, ...]) -> list[str]:
    out = [pieces[0]]
    for sign, minus, piece in zip(signs, choice, pieces[2::2], strict=True):
        out += ["-" if bool(minus) != (sign == "mp") else "+", piece]
    return out
