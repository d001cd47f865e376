"""Reading the answers of retrieval servers, right and wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers import RetrieverDown
from retrievers.http.answers import read_answer


def hit(id_, score=1.0, contents=None):
    return {
        "document": {"id": id_, "contents": contents or f'"T{id_}"\ntext {id_}'},
        "score": score,
    }


def one(document, **row):
    [[passage]] = read_answer(json.dumps({"result": [[{**row, **document}]]}).encode(), 1, 5)
    return passage


@pytest.mark.parametrize(
    ("document", "passage"),
    [
        ({"id": "1", "contents": '"Hamlet"\nA play.'}, ("1", "Hamlet", "A play.")),
        ({"id": 7, "contents": '""Heroes" (song)"\nx\ny'}, ("7", '"Heroes" (song)', "x\ny")),
        ({"id": "1", "contents": "No title\nhere"}, ("1", "", "No title\nhere")),
        ({"id": "1", "title": "T", "text": "x", "contents": '"U"\nz'}, ("1", "U", "z")),
        ({"id": "1", "title": "T", "text": "x", "score": 3}, ("1", "T", "x")),
        ({"_id": "1", "title": None, "text": ""}, ("1", "", "")),
        ({"id": "\ud800", "title": "\ud801", "text": "\udfff"}, ("\ufffd", "\ufffd", "\ufffd")),
    ],
)
def test_shapes_of_documents(document, passage):
    assert one({"document": document}, score=2.5) == (*passage, 2.5)
    assert one(document) == (
        *passage,
        document.get("score", 0),
    )  # bare, from servers without scores


def test_a_document_without_id_gets_one_from_its_text():
    first, again, other = (
        one({"document": {"contents": text}}) for text in ('"T"\nx', '"T"\nx', '"T"\ny')
    )
    assert first.id == again.id != other.id
    assert first == (first.id, "T", "x", 0)


def test_padding_is_dropped_before_the_list_is_cut():
    scores = [float("nan"), 5.0, -3.4028234663852886e38, float("inf"), -7.0, float("-inf"), 4, 3]
    rows = [hit(str(i), score) for i, score in enumerate(scores)]
    content = json.dumps({"result": [rows, []]}).encode()
    first, second = read_answer(content, 2, 3)
    assert [(p.id, p.score) for p in first] == [("1", 5.0), ("4", -7.0), ("6", 4.0)]
    assert second == []


NESTED = b"[" * 200_000


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>Sign in</html>", "not JSON: '<html>Sign in"),
        (b"", "not JSON"),
        (b'\xff\xfe{"res', "not JSON"),
        (NESTED, "not JSON"),
        ([], 'needs "result"'),
        ({"results": []}, 'needs "result"'),
        ({"result": None}, 'needs "result"'),
        # Search-R1 without scores: the documents of the first of two queries, status 200
        ({"result": [hit("1")["document"], hit("2")["document"]]}, 'needs "result"'),
        ({"result": [[hit("1")]]}, "1 lists for 2 queries"),
        ({"result": [[], [], []]}, "3 lists for 2 queries"),
        ({"result": [["text"], []]}, "a hit without a document: 'text'"),
        ({"result": [[{"document": "text"}], []]}, "a hit without a document"),
        ({"result": [[{"document": {"id": "1"}}], []]}, "without contents or text"),
        ({"result": [[{"document": {"id": "1", "contents": 5}}], []]}, "without contents or text"),
        ({"result": [[hit(["1"])], []]}, "wrong type"),
        ({"result": [[hit("1", "high")], []]}, "wrong type"),
        ({"result": [[hit("1", 10**400)], []]}, "too large"),
    ],
)
def test_an_unusable_answer_is_the_servers_fault(answer, message):
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    with pytest.raises(RetrieverDown, match=message):
        read_answer(content, 2, 3)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["document", "id", "_id", "title", "text", "contents", "score"])
            | st.text(),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(
    st.binary()
    | ANY_JSON.map(lambda answer: json.dumps(answer).encode())
    | st.lists(st.lists(ANY_JSON)).map(lambda lists: json.dumps({"result": lists}).encode()),
    st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip
def test_any_answer_is_passages_or_down(content, queries, k):
    try:
        lists = read_answer(content, queries, k)
    except RetrieverDown:
        return
    assert len(lists) == queries
    for passages in lists:
        assert len(passages) <= k
        for passage in passages:
            " ".join(passage[:3]).encode()
            assert -3e38 < passage.score < 1e400


FINE = st.floats(-1e6, 1e6) | st.integers(-5, 5)


TITLE = st.text(st.characters(codec="utf-8", exclude_characters='\n"'))


@given(st.lists(st.lists(st.tuples(st.text(), TITLE, st.text(), FINE)), min_size=1, max_size=4))
def test_what_a_server_writes_is_what_is_read(lists):
    rows = [
        [{"document": {"id": i, "contents": f'"{title}"\n{text}'}, "score": s}
         for i, title, text, s in hits]
        for hits in lists
    ]  # fmt: skip
    read = read_answer(json.dumps({"result": rows}).encode(), len(lists), 100)
    written = [
        [(i, title, text, s) if title else (i, "", f'""\n{text}', s) for i, title, text, s in hits]
        for hits in lists
    ]
    assert read == written
