"""Whether what a search team had found could answer the question, as far as that can be told."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mas_envs.episodes.schema import Episode, ToolResult, Turn
from mas_envs.episodes.text import are_passages
from mas_envs.grading.texts.normalisers import squad

SUPPORT = "whether all of the task's supporting passages had been found"
MENTION = "whether a gold answer stood in a passage found so far (which need not answer it)"
UNKNOWN = "not known"


def sufficient_before(episode: Episode, turn: Turn) -> tuple[bool | None, str]:
    """Whether the passages found before that turn suffice, and what that was judged by.

    By the task's supporting passages (`meta["supporting"]`, tinyworld has them) where they are
    named; else by whether a gold answer occurs in the passages, words compared in SQuAD's normal
    form, which both misses and imagines some. None for golds that are "yes" or "no".
    """
    found: list[dict[str, Any]] = [
        passage
        for event in episode.events[: turn.index]
        if isinstance(event, ToolResult) and event.tool == "search" and are_passages(event)
        for passage in event.result
    ]
    supporting = episode.meta.get("supporting")
    if isinstance(supporting, list) and supporting:
        return set(supporting) <= {passage.get("id") for passage in found}, SUPPORT
    golds = [episode.gold] if isinstance(episode.gold, str) else episode.gold
    if not isinstance(golds, list):
        return None, UNKNOWN
    wanted = {form for gold in golds if isinstance(gold, str) and (form := squad(gold))}
    if not wanted or wanted & {"yes", "no"}:
        return None, UNKNOWN
    texts = [_spaced(f"{passage.get('title') or ''} {passage['text']}") for passage in found]
    return any(f" {form} " in text for form in wanted for text in texts), MENTION


@lru_cache(maxsize=4096)  # a passage is found by many samples
def _spaced(text: str) -> str:
    return f" {squad(text)} "
