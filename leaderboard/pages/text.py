"""What somebody else wrote, made harmless for a reader; HTML is escaped by the templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from mas_envs.episodes.plain import clean

# Control and direction characters, and what is invisible: they hide or reorder what is read.
_CONTROL = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """`text` with control and direction characters named, as `[U+202E]`; line ends stay."""
    text = clean(text).replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: f"[U+{ord(match.group()):04X}]", text)


def shown(value: Any) -> Any:
    """What a template puts into a page: `visible`, unless the page made it itself."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def day(seconds: float) -> str:
    """Unix seconds as a date (UTC)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def signed(value: float) -> str:
    """A difference with its sign and one decimal."""
    return f"{value:+.1f}".replace("-", "−")


def p_text(value: float) -> str:
    """A p-value as papers print it."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def short(title: str) -> str:
    """A suite's title without what stands in brackets."""
    return title.split(" (")[0]


def ranks(value: tuple[int, int] | None) -> str:
    """A range of ranks."""
    if value is None:
        return "–"
    low, high = value
    return str(low) if low == high else f"{low}–{high}"
