"""Text to tokens as Lucene's StandardTokenizer and LowerCaseFilter give them.

The tokenizer looks at 255 UTF-16 units from where it stands, takes the longest token in them,
and goes on behind it; where none starts it goes on one character. The automaton and the classes
of characters are in `tables`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from retrievers.analysis.tables import WIDE, Tables, read_tables

MAX_UNITS = 255  # StandardTokenizer's default; a longer word is cut
WIDE_MARK = chr(WIDE)  # follows each character beyond U+FFFF, so that `len` counts as Java does

_unpaired = re.compile("[\ud800-\udfff]")
_beyond_ffff = re.compile("[\U00010000-\U0010ffff]")


def tokenize(text: str) -> list[str]:
    """The tokens of `text`, in lower case; linear in its length.

    In a token each character beyond U+FFFF is followed by `WIDE_MARK`. A lone surrogate
    separates.
    """
    known = read_tables()
    if text.isascii():
        lower = text.lower()
    else:
        text = _unpaired.sub("\ufffd", text)
        if _beyond_ffff.search(text):
            text = _beyond_ffff.sub(rf"\g<0>{WIDE_MARK}", text)
        lower = text.translate(known.lower)
    classes = text.translate(known.class_of).encode("latin-1")
    found: list[str] = []
    barren: dict[int, int] = {}  # class -> no token starts with it before this place
    start, length = 0, len(classes)
    while start < length:
        first, end = classes[start], 0
        if known.next_state[known.start + first] and start >= barren.get(first, 0):
            end = _longest(known, classes, start)
            if not end and first in _runs():
                barren[first] = _no_start_before(known, classes, start)
        if end:
            found.append(lower[start:end])
        start = end or start + 1
    return found


def _longest(known: Tables, classes: bytes, start: int) -> int:
    """Where the longest token from `start` ends; 0 when there is none."""
    limit = start + MAX_UNITS
    if limit < len(classes) and classes[limit] == known.wide:
        limit -= 1  # no half of a character
    next_state, first_token = known.next_state, known.first_token
    state, end = known.start, 0
    for place, class_ in enumerate(classes[start:limit], start + 1):
        state = next_state[state + class_]
        if state >= first_token:
            end = place
        elif not state:
            break
    return end


@lru_cache(maxsize=1)
def _runs() -> dict[int, re.Pattern[bytes]]:
    """The classes that may be repeated before a token is one, each with the run it starts.

    They are the underscores and the zero-width joiner. Each of 100,000 underscores would have
    255 characters looked at; one look at the run tells where a start can succeed.
    """
    known, runs = read_tables(), {}
    for first in range(known.wide):
        state = known.next_state[known.start + first]
        again = [c for c in range(known.wide + 1) if known.next_state[state + c] == state]
        if 0 < state < known.first_token and first in again:
            runs[first] = re.compile(b"[%b]*" % b"".join(b"\\x%02x" % c for c in again))
    return runs


def _no_start_before(known: Tables, classes: bytes, start: int) -> int:
    """No token starts with the class of `start` from there to this place."""
    run = _runs()[classes[start]].match(classes, start)
    assert run is not None
    after = run.end()
    state = known.next_state[known.start + classes[start]]
    if after == len(classes) or not known.next_state[state + classes[after]]:
        return after
    return after + 1 - MAX_UNITS
