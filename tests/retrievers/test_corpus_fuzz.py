"""Whatever bytes a corpus holds: passages, or an error that names a line."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers import Passage, RetrieverError, load_corpus
from tests.retrievers.corpus_cases import bare_tsv, contents, gz, headed_tsv, jsonl, zst

NAMES = st.sampled_from(["c.jsonl", "c.tsv", "c.parquet", "c"])
CORPORA = [jsonl(), contents(), bare_tsv(), headed_tsv(), gz(jsonl()), zst(headed_tsv())]
PIECES = st.lists(
    st.sampled_from(
        [b'{"id": "1", ', b'"text": "x"}', b'"contents": ', b"\n", b"\t", b'"', b"[", b"}", b"\xff",
         b"id\ttext\n", b"\x00", b"null", b"\\ud800", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"]
    )
)  # fmt: skip


@st.composite
def damaged(draw):
    """A good corpus with a stretch replaced."""
    corpus = draw(st.sampled_from(CORPORA))
    start = draw(st.integers(0, len(corpus)))
    end = draw(st.integers(start, min(len(corpus), start + 40)))
    return corpus[:start] + draw(st.binary(max_size=40)) + corpus[end:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=400, deadline=None)
@given(NAMES, st.binary() | PIECES.map(b"".join) | damaged())
def test_a_row_or_a_named_line(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    try:
        passages = list(load_corpus(path))
    except RetrieverError as error:
        assert re.match(rf"{re.escape(str(path))}(:\d+)?: \S", str(error))
        return
    for passage in passages:
        assert isinstance(passage, Passage) and passage.score == 0
        assert all(isinstance(field, str) for field in passage[:3])
        "".join(passage[:3]).encode()  # no lone surrogate


fields = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
plain = fields.map(lambda text: re.sub(r"[\t\n\r]", " ", text))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(plain, plain, plain).map(lambda fields: Passage(*fields)), max_size=5))
def test_what_is_written_is_read(folder, passages):
    for written in (jsonl, headed_tsv):
        path = folder / f"written.{'tsv' if written is headed_tsv else 'jsonl'}"
        path.write_bytes(gz(written(passages)))
        normal = [p._replace(id=str(int(p.id)) if p.id.isdecimal() else p.id) for p in passages]
        expected = normal if written is jsonl else passages
        blank = [p for p in expected if written is jsonl or "".join(p[:3]).strip()]
        assert list(load_corpus(path)) == blank
