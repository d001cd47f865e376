"""FAISS indexes: recall against exact search on real vectors, small corpora, parameters."""

import numpy as np
import pytest

from retrievers import RetrieverError
from retrievers.dense import open_index, write_index
from retrievers.dense.approximate import FaissSearch, build_faiss, factory_string
from retrievers.dense.exact import ExactSearch
from tests.retrievers.dense_cases import WORDS, hashed, make_index, minilm, rows

faiss = pytest.importorskip("faiss")

NAMES = ["flat", "hnsw", "ivf", "sq8", "IVF2,SQ8"]


def ids(passages):
    return [passage.id for passage in passages]


@pytest.fixture(scope="module")
def real():
    """900 MiniLM vectors of three-word texts, and those of 60 queries."""
    pytest.importorskip("sentence_transformers")
    from retrievers.dense.encoder import Encoding, load_encoder

    encode, _ = load_encoder(minilm(), Encoding(""), batch_size=64, query_batch=64)
    words = [word for word in WORDS if word.isalpha()]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 3, replace=False)) for _ in range(900)]
    queries = [" ".join(rng.choice(words, 2, replace=False)) for _ in range(60)]
    return encode(texts, "passage"), encode(queries, "query")


@pytest.mark.parametrize(
    ("index", "parameters", "least"),
    [
        ("flat", None, 1.0),
        ("hnsw", None, 0.99),
        ("hnsw", "efSearch=400", 0.99),
        ("ivf", "nprobe=12", 0.9),
        ("ivf", "nprobe=23", 1.0),  # all lists: exact
        ("sq8", None, 1.0),
        ("IVF4,SQ8", "nprobe=4", 1.0),
    ],
)
def test_recall_against_exact_on_real_vectors(real, tmp_path, index, parameters, least):
    vectors, queries = real
    rank = np.arange(len(vectors))
    build_faiss(vectors, tmp_path, index, lambda *_: None)
    exact = ExactSearch(vectors, rank, norm=1.001)(queries, 10)
    found = FaissSearch(tmp_path, vectors, rank, parameters)(queries, 10)
    shares = []
    for (places, scores), (want, want_scores) in zip(found, exact, strict=True):
        shares.append(len(set(places) & set(want)) / 10)
        known = dict(zip(want.tolist(), want_scores.tolist(), strict=True))
        for place, score in zip(places.tolist(), scores.tolist(), strict=True):
            assert known.get(place, score) == score  # the exact score, to the bit
    assert np.mean(shares) >= least


@pytest.mark.parametrize("index", NAMES)
def test_top_ten_of_three_and_of_none(tmp_path, index):
    dense = make_index(tmp_path / "three", rows("cat", "dog", "fox"), index=index)
    [found] = dense.search(["dog"], 10)
    assert found[0].id == "1" and len(found) <= 3
    if "," not in index:  # IVF with few lists probed may see fewer
        assert len(found) == 3
    assert make_index(tmp_path / "none", [], index=index).search(["dog"], 10) == [[]]


def test_names_are_short_for_factory_strings(tmp_path):
    assert factory_string("ivf", 1_000_000) == "IVF4000,Flat"
    assert factory_string("ivf", 10) == "IVF1,Flat"
    assert factory_string("HNSW", 5) == "HNSW32" and factory_string("IVF8,PQ4", 5) == "IVF8,PQ4"
    with pytest.raises(RetrieverError, match=r"index='hsnw' is not exact, flat, hnsw"):
        make_index(tmp_path, rows("cat"), index="hsnw")


def test_too_few_vectors_to_train_on(tmp_path):
    with pytest.raises(RetrieverError, match="cannot train 'IVF64,Flat' on 1 vectors"):
        make_index(tmp_path, rows("cat"), index="IVF64,Flat")


def test_parameters_reach_faiss_and_wrong_ones_are_refused(tmp_path):
    texts = [f"{a} {b}" for a in WORDS[:20] for b in WORDS[:20]]
    from retrievers.passages.store import write_passages

    passages = write_passages(rows(*texts), tmp_path / "passages")
    settings = write_index(passages, tmp_path / "dense", encoder=hashed, index="IVF40,Flat")

    def opened(parameters):
        return open_index(
            passages, tmp_path / "dense", settings, encoder=hashed, parameters=parameters
        )

    few, all_ = opened("nprobe=1"), opened("nprobe=40")
    [found_few], [found_all] = few.search(["cat dog"], 100), all_.search(["cat dog"], 100)
    assert len(found_few) < len(found_all) == 100
    for wrong in ("efSearch=10", "nprobe", "speed=3"):
        with pytest.raises(RetrieverError, match="parameters="):
            opened(wrong)
    with pytest.raises(RetrieverError, match="parameters must be a string, got 5"):
        opened(5)
    with pytest.raises(RetrieverError, match="check parameters="):
        opened("nprobe=0").search(["cat"], 1)
    exact = {**settings, "index": "exact"}
    with pytest.raises(RetrieverError, match="are for a FAISS index"):
        open_index(passages, tmp_path / "dense", exact, encoder=hashed, parameters="nprobe=1")


def test_an_index_of_other_vectors_or_none_is_refused(tmp_path):
    from retrievers.passages.store import write_passages

    passages = write_passages(rows("cat", "dog", "fox"), tmp_path / "passages")
    settings = write_index(passages, tmp_path / "dense", encoder=hashed, index="flat")
    path = tmp_path / "dense/faiss.index"
    faiss.write_index(faiss.index_factory(16, "Flat"), str(path))
    with pytest.raises(RetrieverError, match="holds 0 vectors, the index 3"):
        open_index(passages, tmp_path / "dense", settings, encoder=hashed)
    path.write_bytes(b"")
    with pytest.raises(RetrieverError, match="faiss cannot read it"):
        open_index(passages, tmp_path / "dense", settings, encoder=hashed)
