"""What a manifest says of a system, in words: its models, their sizes, its settings."""

from __future__ import annotations

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
    declared: Any = getattr(record.manifest, "parameters", None)
    return None if not declared else sum(declared.values()) / 1e9


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
    ]
    return said(pairs)


def said(pairs: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """(name, text) of what is not empty."""
    return [
        (name, shorten(in_words(value), LONGEST))
        for name, value in pairs
        if value is not None and value not in ("", {}, [], ())
    ]
