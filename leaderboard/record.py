"""What is known of one verified submission, ready for pages and JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from leaderboard.findings import Check
from leaderboard.manifest import Manifest, Score
from leaderboard.verify import PASSAGES, Verification


class Record(msgspec.Struct, kw_only=True):
    """Nothing in it is private, and no text of a conversation or a question is in it but what
    `checks` quote of a rejected one.

    `id` is the start of the zip's SHA-256 (16 hex digits), `received` in seconds since 1970.
    `reasons` say why the status is not "recomputed". The numbers are ours (see `Verification`);
    `cost_usd` is declared. `passages_unchecked`: what its searches found was believed.
    """

    id: str
    received: float
    status: Literal["waiting", "recomputed", "self-reported", "rejected"]
    reasons: list[str] = []
    manifest: Manifest
    checks: list[Check] = []
    scores: dict[str, Score] = {}
    curve: list[float] = []
    right: dict[str, int] = {}
    by_turn: list[float] = []
    tokens: dict[str, dict[str, float]] = {}
    warnings: list[str] = []
    passages_unchecked: bool = False
    cost_usd: float | None = None


def make_record(found: Verification, *, id: str, received: float) -> Record:
    """The record of a submission. Whom to ask about it (`contact`) is not published."""
    return Record(
        id=id,
        received=received,
        status=found.status,
        reasons=found.reasons,
        manifest=msgspec.structs.replace(found.manifest, contact=None),
        checks=found.checks,
        scores=found.scores,
        curve=found.curve,
        right=found.right,
        by_turn=found.by_turn,
        tokens=found.tokens,
        warnings=[one.detail for one in found.checks if one.result == "warning"],
        passages_unchecked=any(
            one.name == "tools" and one.result == "unchecked" and PASSAGES in one.detail
            for one in found.checks
        ),
        cost_usd=found.manifest.cost_usd,
    )
