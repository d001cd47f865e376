"""Options no index can be made with: one line each, before the corpus is read, nothing left."""

import pytest

from retrievers import Passage, RetrieverError, build
from tests.retrievers.dense_cases import hashed, rows, tiny_bert

pytest.importorskip("sentence_transformers")
faiss = pytest.importorskip("faiss")
torch = pytest.importorskip("torch")

WRONG = [
    ({"dtype": "int8"}, "dtype must be one of 'float32', 'float16'"),
    ({"dtype": ["float32"]}, "dtype must be one of"),
    ({"index": "HNWS32"}, "index='HNWS32' is not exact, flat, hnsw"),
    ({"index": 5}, "index must be a string"),
    ({"index": "PQ7"}, "for vectors of 32 numbers"),
    ({"index": "HNSW1"}, "HNSW needs at least 2 links"),
    ({"index": "IDMap,Flat"}, "cannot be built block by block"),
    ({"faiss_index": "missing.index"}, "faiss_index='missing.index': there is no such file"),
    ({"faiss_index": 5}, "faiss_index must be a path"),
    ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
    ({"batch_size": -3}, "batch_size must be an integer >= 1"),
    ({"batch_size": "16"}, "batch_size must be an integer >= 1"),
    ({"device": "gpu"}, "device='gpu' is not here"),
    ({"device": "meta"}, "device='meta' is not here"),
    ({"device": 5000}, "device=5000 is not here"),
    ({"encoder": "./missing"}, "encoder './missing' is no folder"),
    ({"encoder": ""}, "encoder must be a folder"),
    ({"encoder": 5}, "encoder must be a folder"),
    ({"pooling": "max"}, "pooling must be one of"),
    ({"max_length": "256"}, "max_length must be an integer"),
    ({"max_length": True}, "max_length must be an integer"),
    ({"revision": 3}, "revision must be a string"),
    ({"passage_prefix": 3}, "passage_prefix must be a string"),
    ({"encodr": "x"}, "unknown option 'encodr' for .*did you mean 'encoder'"),
]
if not torch.cuda.is_available():
    WRONG.append(({"device": "cuda"}, "device='cuda' is not here"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("models") / "e5-tiny")


def unread():
    pytest.fail("the corpus was read")
    yield Passage("", "", "")


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
@pytest.mark.parametrize(("options", "message"), WRONG)
def test_told_before_the_corpus_is_read(bert, tmp_path, monkeypatch, backend, options, message):
    monkeypatch.chdir(tmp_path)
    options = {"encoder": bert, **options}
    given = options if backend == "dense" else {"dense": options}
    with pytest.raises(RetrieverError, match=message) as raised:
        build(unread(), "index", backend, **given)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"k1": -1}, {"bm25": {"b": 2}}, {"bm25": None, "dense": None}, {"depth": 0}]
)
def test_told_of_other_parts_too(tmp_path, options):
    with pytest.raises(RetrieverError):
        build(unread(), tmp_path / "index", "hybrid", **{"dense": {"encoder": hashed}, **options})
    with pytest.raises(RetrieverError, match="k1 must be"):
        build(unread(), tmp_path / "index", "bm25", k1=-1)
    assert not list(tmp_path.iterdir())


def test_a_faiss_file_of_another_size_is_found_before_the_corpus_is_read(bert, tmp_path):
    path = tmp_path / "e5_Flat.index"
    faiss.write_index(faiss.index_factory(16, "Flat", faiss.METRIC_INNER_PRODUCT), str(path))
    with pytest.raises(RetrieverError, match="holds vectors of 16 numbers, the encoder gives 32"):
        build(unread(), tmp_path / "index", "dense", encoder=bert, faiss_index=path)


def test_a_mistake_found_late_leaves_nothing(bert, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "a cat"}\n')
    with pytest.raises(RetrieverError, match="cannot train 'IVF64,Flat' on 1 vectors"):
        build(corpus, tmp_path / "index", "dense", encoder=bert, index="IVF64,Flat")
    assert list(tmp_path.iterdir()) == [corpus]


def test_paths_are_options_like_strings(bert, tmp_path):
    texts = ["the cat sat", "old fox", "the cat sat"]
    made = build(rows(*texts), tmp_path / "a", "dense", encoder=bert, index="flat")
    again = build(
        rows(*texts),
        tmp_path / "b",
        "dense",
        encoder=bert,
        faiss_index=tmp_path / "a/dense/faiss.index",
    )
    assert again.search(["fox", "cat"], 3) == made.search(["fox", "cat"], 3)
