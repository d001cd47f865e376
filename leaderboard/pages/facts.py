"""What a manifest says of a system, in words: its models, their sizes, its settings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mas_envs.episodes.viewer.conversations import in_words, shorten

if TYPE_CHECKING:
    from leaderboard.record import Record

LONGEST = 2000  # characters of one setting


def model_names(record: Record) -> list[str]:
    """The names that the models gave themselves, each once."""
    return sorted({name for names in record.manifest.models.values() for name in names if name})


def parameters(record: Record) -> float | None:
    """Billions of parameters of all its models together; None where one is not declared."""
    declared = record.manifest.parameters
    return sum(declared.values()) / 1e9 if declared else None


def settings(record: Record) -> list[tuple[str, str]]:
    """(name, text) of everything that was set for the run, and says something."""
    about = record.manifest
    sampling = about.sampling
    env = dict(about.env)
    pairs: list[tuple[str, Any]] = [
        ("suite", f"{about.suite.name}, {about.suite.rows} questions"),
        ("content (SHA-256)", about.suite.sha256),
        ("samples per question", about.k),
        ("seed", about.seed),
        ("environment", env.get("id")),
        ("arguments", env.get("kwargs")),
        ("prompts", about.prompts),
        ("temperature", sampling.temperature),
        ("top-p", sampling.top_p),
        ("top-k", sampling.top_k or None),
        ("tokens per answer, at most", sampling.max_tokens),
        ("passages", about.passages),
        ("revisions", about.revisions),
        ("hardware", about.hardware),
        ("training data", _training(record)),
    ]
    return said(pairs)


def _training(record: Record) -> str | None:
    """What the team declares to have trained on, and how many questions of the suite it touches."""
    declared = record.manifest.training
    if declared is None:
        return "not declared"
    if not declared:
        return "none but that of the public checkpoints"
    return "; ".join(
        one.name if one.touched is None
        else f"{one.name} ({one.rows or 0} rows, touches {one.touched} questions)"
        for one in declared
    )  # fmt: skip


def session(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What a session of the run recorded of itself, moments as dates (UTC)."""
    names = {"dirty": "changed since the commit"}
    shown = []
    for key, value in told.items():
        if key in ("started", "finished") and isinstance(value, int | float) and 0 < value < 4e9:
            value = f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
        shown.append((names.get(key, key), {True: "yes", False: "no"}.get(value, value)
                      if isinstance(value, bool) else value))  # fmt: skip
    return said(shown)


def said(pairs: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """(name, text) of what is not empty."""
    return [
        (name, shorten(in_words(value), LONGEST))
        for name, value in pairs
        if value is not None and value not in ("", {}, [], ())
    ]
