"""Golden terms and stems: what live Lucene makes of texts and words of our own.

golden.json maps a text to its terms. stems.txt has a row of endings after "-", then for each
root the stems of root + ending. digest.txt is the digest of the terms of `class_texts`. They are
written by `--regenerate` (lucene/test_live_analysis.py).
"""

import hashlib
import random
from itertools import product
from pathlib import Path

from tests.retrievers.analysis_cases.learn_tables import REPRESENTATIVES, spelled

GOLDEN = Path(__file__).with_name("golden.json")
STEMS = Path(__file__).with_name("stems.txt")
DIGEST = Path(__file__).with_name("digest.txt")
# The shortest texts, in class letters, that lead to each state of the automaton.
# fmt: off
PREFIXES = (
    "9", "A", "H", "P", "R", "Z", "_", "a", "b", "c", "k", "m", "t", "9'", "AZ", "Av", 'H"', "H'",
    "PZ", "Pv", "a'", "a_", "bK", "bv", "mZ", "AZP", "AvZ", "PvZ", "Pvg", "bvK", "AZPZ", "AZPv",
    "AvZZ", "AvZm", "PvZZ", "PvgG", "AvZmZ",
)
# fmt: on


def stem_rows():
    """The endings, and for each root its stems in the same order."""
    (_, *endings), *rows = map(str.split, STEMS.read_text("ascii").splitlines())
    return endings, {root: stems for root, *stems in rows}


def class_texts():
    """Texts of 500 lines: a prefix, every two classes of characters, two at random."""
    classes, rng = list(REPRESENTATIVES), random.Random(1)
    lines = [
        spelled([*prefix, *two, *rng.choices(classes, k=2)])
        for prefix in ["", *PREFIXES]
        for two in product(classes, repeat=2)
    ]
    return ["\n".join(lines[start : start + 500]) for start in range(0, len(lines), 500)]


def digest(terms_of_texts):
    """SHA-256 over the terms of texts, in order."""
    whole = "\n".join(term for terms in terms_of_texts for term in terms)
    return hashlib.sha256(whole.encode()).hexdigest()
