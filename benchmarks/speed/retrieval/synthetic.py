"""A made-up corpus of any size that weighs on an index as English text does.

    python -m benchmarks.speed.retrieval.synthetic 1000000 corpus.jsonl

The same on every machine, Python and numpy: only integer arithmetic on the raw 64-bit output of
PCG64, whose stream numpy guarantees (it does not guarantee the distributions of `Generator`).
Passage i depends on the seed and i alone, query j on its seed, `within` and j. **Never change what
it yields**: golden lists made by Lucene hang on it, and the first rows' hashes are tested.

What it copies from real text: stop words in natural proportion, then frequent words that Lucene
keeps ("from", "he"), then a Zipf-Mandelbrot body of 300,000 words with English endings for the
stemmer, figures, and names drawn log-uniformly from 17 million, so that the vocabulary goes on
growing. Each passage has six words of its own, which it repeats and of which its title is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.speed.retrieval.words import FIGURES, NAMES, SHARES, raw, spell, vocabulary
from retrievers import Passage

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

BLOCK = 128  # passages drawn together
OWN = 6  # words a passage repeats
HEADER = 1 + OWN  # draws per passage before its words: its length, its own words
SHORTEST, SPREAD = 70, 31  # words of a passage: SHORTEST and two draws below SPREAD
LONGEST = SHORTEST + 2 * (SPREAD - 1)
ENDS = 20  # of 256 words, so many end a sentence
MARKS = [","] * 14 + ["'s"] * 3 + [";", " –"]  # what follows as many others

_OPENERS = """
who was the|what is the name of|when did the|where was|which city|how many people|who wrote|why did
in what year did|what was the first|how was the|who has been the|when was the|where in
"""
_GLUE = "of the|in the|from|by the|with|and|to|after|for|during the|on|between"
OPENERS, GLUE = _OPENERS.strip().replace("\n", "|").split("|"), _GLUE.split("|")

Draws = NDArray[np.uint64]


def passages(n: int, seed: int = 0) -> Iterator[Passage]:
    """The first `n` passages, ids "0", "1", …; constant memory."""
    table = vocabulary().words
    for block in range(-(-n // BLOCK)):
        tokens, own, lengths = _tokens(seed, block)
        ends, marked = _marks(seed, block)
        first = block * BLOCK
        for row, (numbers, names, length) in enumerate(
            zip(tokens.tolist(), own.tolist(), lengths.tolist(), strict=True)
        ):
            if first + row == n:
                return
            words = [table[n] if n < NAMES else spell(n) for n in numbers[:length]]
            _punctuate(words, ends[row], marked[row])
            title = " ".join(spell(name) for name in names[: 1 + length % 3])
            yield Passage(str(first + row), title[0].upper() + title[1:], " ".join(words))


def queries(n: int, seed: int = 0, *, within: int = 100_000, corpus: int = 0) -> Iterator[str]:
    """`n` questions of 8 to 10 words about passages among the first `within` of seed `corpus`."""
    for number in range(n):
        draws = raw(16, seed, number, 2).tolist()
        block, row = divmod(draws[0] % within, BLOCK)
        tokens, own, lengths = (drawn[row].tolist() for drawn in _tokens(corpus, block))
        words = OPENERS[draws[1] % len(OPENERS)].split()
        wanted = 8 + draws[2] % 3
        for place, draw in enumerate(draws[3:]):
            if place % 3 == 2:
                words += GLUE[draw % len(GLUE)].split()
            elif place % 3:
                words.append(spell(tokens[draw % lengths]).strip("()"))
            else:
                words.append(spell(own[place // 3]))
        yield " ".join(words[:wanted]).lower() + "?" * (draws[2] >> 32 & 1)


def _tokens(seed: int, block: int) -> tuple[Draws, Draws, NDArray[np.int64]]:
    """Token numbers [BLOCK, LONGEST], those of the own words [BLOCK, OWN], lengths [BLOCK].

    A draw's bits: 0-9 what kind of word, 10-15 which of the own ones, 24-63 which of the table.
    """
    table, rare = vocabulary(), vocabulary().rare
    draws = raw(BLOCK * (HEADER + LONGEST), seed, block, 0).reshape(BLOCK, -1)
    head, body = draws[:, 1:HEADER], draws[:, HEADER:]
    lengths = SHORTEST + draws[:, 0] % SPREAD + (draws[:, 0] >> 32) % SPREAD
    rarer = np.uint64((1 << SHARES) - rare)
    chosen = np.uint64(rare) + ((head >> np.uint64(40)) * rarer >> np.uint64(24))
    is_name = (head & 15) < np.array([5, 1, 0, 0, 0, 0], dtype=np.uint64)
    own = np.where(is_name, _names(head), table.drawn(chosen))
    tokens = table.drawn(body >> np.uint64(24))
    kind = body & 1023
    which = np.minimum(body >> 10 & 7, body >> 13 & 7) % OWN
    repeated = np.take_along_axis(own, which.astype(np.int64), axis=1)
    tokens = np.where(kind < 64, repeated, tokens)
    tokens = np.where((kind >= 64) & (kind < 66), _names(body), tokens)
    tokens = np.where((kind >= 66) & (kind < 90), FIGURES + (body >> 24), tokens)
    return tokens, own, lengths.astype(np.int64)


def _names(draws: Draws) -> Draws:
    """Log-uniform: as many below 2^16 as between 2^23 and 2^24."""
    octave = np.uint64(1) << (15 + (draws >> 58) % 9)
    return NAMES + octave + ((draws >> 16) & (octave - 1))


def _marks(seed: int, block: int) -> tuple[list[list[int]], list[dict[int, str]]]:
    """For each passage, after which words a sentence ends, and what else follows which word."""
    count = BLOCK * LONGEST
    octets = raw(-(-count // 8), seed, block, 1).astype("<u8").view(np.uint8)[:count]
    ends: list[list[int]] = [[] for _ in range(BLOCK)]
    marked: list[dict[int, str]] = [{} for _ in range(BLOCK)]
    places = np.flatnonzero(octets < ENDS + len(MARKS))
    for place, octet in zip(places.tolist(), octets[places].tolist(), strict=True):
        row, word = divmod(place, LONGEST)
        if octet < ENDS:
            ends[row].append(word)
        else:
            marked[row][word] = MARKS[octet - ENDS]
    return ends, marked


def _punctuate(words: list[str], ends: list[int], marked: dict[int, str]) -> None:
    """Sets marks after the words, and capitals and full stops where sentences begin and end."""
    last = len(words) - 1
    for place, mark in marked.items():
        if place < last and (mark != "'s" or words[place][0].isupper()):
            words[place] += mark
    start = 0
    for end in [*(end for end in ends if end < last), last]:
        if end > start + 3 or end == last:
            words[start] = words[start][0].upper() + words[start][1:]
            words[end] += "."
            start = end + 1


@app.command(epilog="Example: python -m benchmarks.speed.retrieval.synthetic 1000 out.jsonl")
def main(
    number: Annotated[int, typer.Argument(min=1, help="How many passages.")],
    out: Annotated[Path, typer.Argument(help="A JSONL file of id, title and text.")],
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Writes the corpus to a file."""
    with out.open("w", encoding="utf-8") as file:
        for id_, title, text, _ in passages(number, seed):
            row = {"id": id_, "title": title, "text": text}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    app()
