"""Lucene's view of Unicode: the classes of characters, the automaton of tokens, lower case.

`tables.txt` holds them, so that no Python's own Unicode version matters. It is written by
tests/retrievers/analysis_cases/learn_tables.py, which asks a live Lucene (its grammar follows
UAX #29 and UTS #51 of Unicode 12.1) about every code point and learns the automaton from its
answers. Three kinds of lines:

    class   letter  first-last ...              code points in hexadecimal; one line a class
    state   number  [token]  letters>state ...  0 is the start; "token": one may end here
    lower   first-last  step  distance          every step-th code point has its lower case
                                                at this distance
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

WIDE = 0xDC00  # the scanner writes it after a character beyond U+FFFF; it changes no state


class Tables(NamedTuple):
    """What `tables.txt` says, in the form the scanner wants."""

    class_of: bytes  # [0x110000]: number of each code point's class; 0 is in no token
    wide: int  # the class of WIDE, the last
    next_state: tuple[int, ...]  # [states * classes]: start of the next state's row; 0 is none
    start: int  # row of the first state
    first_token: int  # from this row on, what was read is a token
    lower: dict[int, int]


@lru_cache(maxsize=1)
def read_tables() -> Tables:
    """Read `tables.txt`, once."""
    text = Path(__file__).with_name("tables.txt").read_text("ascii")
    lines: dict[str, list[list[str]]] = {"class": [], "state": [], "lower": [], "#": []}
    for kind, *fields in map(str.split, text.splitlines()):
        lines[kind].append(fields)

    letters = {letter: number for number, (letter, *_) in enumerate(lines["class"], 1)}
    class_of = bytearray(0x110000)
    for letter, *spans in lines["class"]:
        for first, last in map(_span, spans):
            class_of[first : last + 1] = bytes([letters[letter]]) * (last + 1 - first)
    class_of[WIDE] = wide = len(letters) + 1

    row = {number: (wide + 1) * place for place, (number, *_) in enumerate(lines["state"], 1)}
    next_state = [0] * ((wide + 1) * (len(row) + 1))
    for number, *arrows in lines["state"]:
        next_state[row[number] + wide] = row[number] if number != "0" else 0
        for of, _, target in (arrow.partition(">") for arrow in arrows if arrow != "token"):
            for letter in of:
                next_state[row[number] + letters[letter]] = row[target]
    first_token = next(row[number] for number, *arrows in lines["state"] if "token" in arrows)

    lower: dict[int, int] = {}
    for span, step, distance in lines["lower"]:
        first, last = _span(span)
        lower.update((code, code + int(distance)) for code in range(first, last + 1, int(step)))
    return Tables(bytes(class_of), wide, tuple(next_state), row["0"], first_token, lower)


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first, 16), int(last or first, 16)
