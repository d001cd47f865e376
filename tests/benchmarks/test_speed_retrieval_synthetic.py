"""The synthetic corpus: the same for ever, of any length, and as heavy as text."""

import hashlib
import json
import re
import statistics
from itertools import islice

import pytest
from typer.testing import CliRunner

from benchmarks.speed.retrieval.synthetic import app, passages, queries
from benchmarks.speed.retrieval.words import vocabulary

_STOPS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
LUCENE_STOPS = set(_STOPS.split())


def sha256(rows):
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def test_the_first_rows_never_change():
    """Golden lists made by Lucene hang on these; a new hash means that they are all void."""
    assert sha256("\t".join(p[:3]) for p in passages(1000)) == (
        "85f8e15ef2654466bc5634c8aaa0a4824e5720821aff9819341f56f03074dcda"
    )
    assert sha256(queries(1000)) == (
        "4175f5a3710932c542d52df968867afac24c644724ad1e465c62b1a0568a6624"
    )
    assert sha256(vocabulary().words) == (
        "c84c0e477d80b6795c2a4dd1f83d1e5e392b0b4abd009eb862b036980b104d44"
    )


def test_a_passage_depends_on_the_seed_and_its_place_alone():
    rows = list(passages(300))
    assert [p.id for p in rows] == [str(place) for place in range(300)]
    for n in (1, 127, 128, 129, 299):
        assert list(passages(n)) == rows[:n]
    assert list(islice(passages(10**9), 300)) == rows
    assert not {p.text for p in passages(300, seed=1)} & {p.text for p in rows}
    assert list(passages(0)) == []


def test_a_query_depends_on_its_seed_its_range_and_its_place_alone():
    some = list(queries(20))
    assert list(queries(5)) == some[:5]
    assert not set(queries(20, seed=1)) & set(some)
    assert list(queries(20, within=1000)) != some
    assert all(8 <= len(query.split()) <= 10 for query in some)


def test_a_query_has_words_of_one_passage():
    texts = [set(re.findall(r"[\w'-]+", f"{p.title} {p.text}".lower())) for p in passages(50)]
    shared = []
    for query in queries(30, within=50):
        words = {word.strip("?") for word in query.split()} - LUCENE_STOPS
        shared.append(sorted(len(words & text) for text in texts)[::-1])
    assert statistics.mean(best for best, *_ in shared) > 3
    assert statistics.mean(others[25] for _, *others in shared) < 1.5


def test_stop_words_are_as_frequent_as_in_text_and_the_vocabulary_grows():
    words = [
        [word.rstrip(".") for word in re.findall(r"[\w.']+", p.text.lower())]
        for p in passages(4000)
    ]
    flat = [word for row in words for word in row]
    assert 0.27 < sum(word in LUCENE_STOPS for word in flat) / len(flat) < 0.33
    assert 95 < len(flat) / len(words) < 110
    first = {word for row in words[:2000] for word in row}
    assert len(set(flat)) > 1.5 * len(first) > 60_000


@pytest.mark.parametrize("seed", [0, 3])
def test_the_command_writes_one_json_object_per_line(tmp_path, seed):
    out = tmp_path / "out.jsonl"
    assert CliRunner().invoke(app, ["200", str(out), "--seed", str(seed)]).exit_code == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert rows == [{"id": p.id, "title": p.title, "text": p.text} for p in passages(200, seed)]
