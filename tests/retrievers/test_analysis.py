"""Lucene's English analysis: golden terms made by Lucene, and properties on every text.

The comparison with a live Lucene is lucene/test_live_analysis.py (make test-lucene).
"""

import json
import random
import string
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retrievers import analysis
from retrievers.analysis import analyze, tokenizer
from retrievers.analysis.porter import stem
from retrievers.analysis.tables import WIDE, read_tables
from tests.retrievers.analysis_cases import DIGEST, GOLDEN, class_texts, digest, stem_rows

TEXTS = json.loads(GOLDEN.read_text("ascii"))
# One character of each class, white space, and lone surrogates.
CHARS = [chr(read_tables().class_of.index(number)) for number in range(read_tables().wide)]
CHARS += [*" \n\u202f\u3000\0sS\u2019\u0130\u24c2\ud83d\ude00\udc00", "\U00020000", "ing"]
any_text = st.text(st.characters()) | st.lists(st.sampled_from(CHARS)).map("".join)
ascii_text = st.text(st.sampled_from(string.printable + "'._s"))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:20]))
def test_golden_terms(text):
    assert analyze(text) == TEXTS[text]


def test_golden_terms_of_one_text_and_of_many_threads():
    joined = "\n".join(TEXTS)
    expected = [term for terms in TEXTS.values() for term in terms]
    analysis._remembered_terms.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert all(terms == expected for terms in pool.map(analyze, [joined] * 64))


def test_golden_stems():
    endings, rows = stem_rows()
    assert {root: [stem(root + end) for end in endings] for root in rows} == rows
    assert sum(map(len, rows.values())) > 3000


def test_golden_digest_of_every_two_classes_in_every_state():
    assert digest(map(analyze, class_texts())) == DIGEST.read_text("ascii").strip()


@given(any_text, any_text)
def test_texts_on_lines_of_their_own_keep_their_terms(first, second):
    assert analyze(f"{first}\n{second}") == analyze(first) + analyze(second)


@given(any_text)
def test_a_token_is_one_token(text):
    assume("\u24c2" not in text)  # an emoji whose lower case is none
    for token in tokenizer.tokenize(text):
        token = token.replace(chr(WIDE), "")
        assert [t.replace(chr(WIDE), "") for t in tokenizer.tokenize(token)] == [token]


@given(ascii_text)
def test_the_short_way_for_ascii_gives_what_the_scanner_gives(text):
    for piece in text.split():
        assert analyze(piece) == analyze(piece + "\u2014")  # a dash sends it to the scanner
    assert analyze(text.upper()) == analyze(text)


@given(any_text)
def test_lone_surrogates_separate_and_never_come_out(text):
    cleaned = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert analyze(text) == analyze(cleaned)
    "".join(analyze(text)).encode("utf-8")  # raises for a surrogate


def test_no_space_of_this_python_is_in_a_token_but_the_one_provided_for():
    spaces = [code for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert [code for code in spaces if read_tables().class_of[code]] == [0x202F]
    assert analyze("a1\u202fb2 c3") == ["a1\u202fb2", "c3"]


def test_what_is_remembered_has_a_bound():
    caches = [analysis._remembered_terms, analysis._remembered_stem]
    assert all(cache.cache_info().maxsize <= 100_000 for cache in caches)
    before = [cache.cache_info().currsize for cache in caches]
    assert analyze("x" * 65 + "-" + "y" * 200 + " " + "z" * 5000)[0] == "x" * 65
    assert [cache.cache_info().currsize for cache in caches] == before


class Counting(tuple):
    """The automaton's table, counting the characters looked at."""

    looks = 0

    def __getitem__(self, place):
        Counting.looks += 1
        return super().__getitem__(place)


def test_work_is_linear_in_the_text(monkeypatch):
    """Pairs and random patterns of all classes; a scan may look ahead 255 characters in vain."""
    counted = read_tables()._replace(next_state=Counting(read_tables().next_state))
    monkeypatch.setattr(tokenizer, "read_tables", lambda: counted)
    rng = random.Random(3)
    chars = CHARS[: read_tables().wide]
    patterns = [a + b * n for a in chars for b in chars for n in (1, 300)]
    patterns += [
        "".join(rng.choice(chars) * rng.choice([1, 1, 2, 100, 300]) for _ in range(3))
        for _ in range(500)
    ]
    for pattern in patterns:
        text = pattern * (600 // len(pattern) + 1)
        Counting.looks = 0
        tokenizer.tokenize(text)
        assert Counting.looks < 8 * len(text), ascii(pattern)
