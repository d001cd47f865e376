"""Our analysis against live Lucene's: every code point, random texts, SciFact, golden files.

With `--regenerate` the golden files of tests/retrievers/analysis_cases are written anew.
"""

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from retrievers.analysis import analyze
from retrievers.analysis.tables import WIDE, read_tables
from tests.retrievers.analysis_cases import DIGEST, GOLDEN, STEMS, class_texts, digest, stem_rows

SCIFACT = Path(__file__).parents[4] / "shared/data/beir/scifact"
CODE_POINTS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.fixture
def same(lucene_analyze):
    """Compare the terms of texts, and give how many terms there were."""

    def compare(texts, size=500):
        count = 0
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            for text, terms in zip(part, lucene_analyze(part), strict=True):
                assert analyze(text) == list(terms), ascii(text[:300])
                count += len(terms)
        return count

    return compare


@pytest.mark.slow
@pytest.mark.parametrize(
    "context", ["{}", "a{}b", "9{}9", "{}ing'S", "\u30ab{}\u30ab", "\U0001f600{}\u200d\U0001f600"]
)
def test_every_code_point(same, context):
    lines = [context.format(char) for char in CODE_POINTS]
    texts = ["\n".join(lines[start : start + 500]) for start in range(0, len(lines), 500)]
    assert same(texts, 100) > 100_000


def random_text(rng, members):
    """Characters drawn class by class; or few classes; or Latin edges; or long; or runs."""
    kind, classes = rng.random(), sorted(members)
    if kind < 0.2:
        letters = "abcxyzsedingAEIOUS'.,:;_ 0189-#*"
        letters += "\0\n\xad\xe9\u0130\u0301\u03a3\u2019\u202f\u212a\uff07"
        return "".join(rng.choices(letters, k=rng.randint(1, 60)))
    few = rng.sample(classes, rng.randint(1, 4)) if kind < 0.6 else classes
    length = rng.randint(240, 1200) if kind < 0.3 else rng.randint(1, 40)
    if kind < 0.9:
        return "".join(rng.choice(members[rng.choice(few)]) for _ in range(length))
    edges = [1, 1, 2, 126, 127, 128, 252, 253, 254, 255, 256, 257, 509, 510, 511]
    return "".join(
        rng.choice(members[rng.choice(classes)]) * rng.choice(edges)
        for _ in range(rng.randint(1, 8))
    )


@pytest.mark.slow
def test_random_texts(same):
    members = defaultdict(list)
    for char in CODE_POINTS:
        members[read_tables().class_of[ord(char)]].append(char)
    assert len(members) == read_tables().class_of[WIDE]
    rng = random.Random(5)
    assert same([random_text(rng, members) for _ in range(20_000)]) > 100_000


@pytest.mark.slow
@pytest.mark.skipif(not SCIFACT.is_dir(), reason="needs shared/data/beir/scifact")
def test_scifact(same):
    rows = map(json.loads, (SCIFACT / "corpus.jsonl").read_text("utf-8").splitlines())
    assert same([f"{row['title']}\n{row['text']}" for row in rows]) == 838_128


def test_golden_texts(lucene_analyze, request):
    texts = list(json.loads(GOLDEN.read_text("ascii")))
    found = dict(zip(texts, map(list, lucene_analyze(texts)), strict=True))
    if request.config.getoption("--regenerate", default=False):
        lines = [f"{json.dumps(text)}: {json.dumps(terms)}" for text, terms in found.items()]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", "ascii")
    assert found == json.loads(GOLDEN.read_text("ascii"))


def test_golden_stems(lucene_analyze, request):
    endings, rows = stem_rows()
    found = {
        root: [terms[0] for terms in lucene_analyze([root + e for e in endings])] for root in rows
    }
    if request.config.getoption("--regenerate", default=False):
        lines = [" ".join(["-", *endings]), *(" ".join([r, *found[r]]) for r in found)]
        STEMS.write_text("\n".join(lines) + "\n", "ascii")
    assert found == stem_rows()[1]


def test_golden_digest(lucene_analyze, request):
    found = digest(lucene_analyze(class_texts()))
    if request.config.getoption("--regenerate", default=False):
        DIGEST.write_text(found + "\n", "ascii")
    assert found == DIGEST.read_text("ascii").strip()
