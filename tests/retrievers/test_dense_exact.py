"""Exact search against float64 brute force: ties, block sizes, batches, threads, torch."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers.dense import exact
from retrievers.dense.exact import ExactSearch, exact_scores
from retrievers.dense.repeats import hashes, repeated


def brute(vectors, rank, query, k):
    scores = np.array([sum(map(float, v.astype(float) * query)) for v in vectors.astype(float)])
    order = sorted(range(len(vectors)), key=lambda i: (-round(scores[i], 4), rank[i]))[:k]
    return order, scores[order]


@st.composite
def cases(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    n, d, m = draw(st.integers(1, 60)), draw(st.integers(1, 9)), draw(st.integers(1, 5))
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, d))
    if draw(st.booleans()):  # many equal rows, and scores that tie only once rounded
        vectors = vectors[rng.integers(0, max(1, n // 6), n)]
        vectors += rng.choice([0, 3e-6], (n, d))
    vectors = (vectors * draw(st.sampled_from([1, 1e-3, 50]))).astype(
        draw(st.sampled_from(["float32", "float16"]))
    )
    rank = rng.permutation(n).astype(np.uint32)
    queries = rng.standard_normal((m, d)).astype(np.float32)
    return vectors, rank, queries


def near_rounding_edge(scores):
    return (np.abs((scores * 1e4) % 1 - 0.5) < 1e-7).any()


@settings(deadline=None)
@given(cases(), st.integers(0, 70), st.sampled_from([1, 2, 7, 100]), st.booleans())
def test_equals_brute_force_whatever_the_blocks(case, k, block, on_torch):
    vectors, rank, queries = case
    norm = float(np.linalg.norm(vectors.astype(float), axis=1).max())
    search = ExactSearch(vectors, rank, norm=norm)
    if on_torch:
        search._on_device = exact._resident(vectors, "cpu")  # the path of a GPU
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK", block)
        patch.setattr(exact, "GPU_BLOCK", block)
        found = search(queries, k)
    assert len(found) == len(queries)
    for query, (places, scores) in zip(queries, found, strict=True):
        want, want_scores = brute(vectors, rank, query.astype(float), k)
        if not near_rounding_edge(want_scores):
            assert places.tolist() == want
        np.testing.assert_allclose(scores, want_scores, atol=1e-4 + 1e-9)


def test_same_bits_in_any_batch_block_and_thread(monkeypatch):
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((3000, 48)).astype(np.float32)
    vectors[1000:] = vectors[rng.integers(0, 1000, 2000)]
    queries = rng.standard_normal((80, 48)).astype(np.float32)
    search = ExactSearch(vectors, rng.permutation(3000), norm=15.0)
    want = search(queries, 20)

    def check(found):
        for (places, scores), (places_2, scores_2) in zip(want, found, strict=True):
            assert places.tolist() == places_2.tolist()
            assert scores.tobytes() == scores_2.tobytes()

    check([search(query[None], 20)[0] for query in queries])
    with ThreadPoolExecutor(4) as pool:
        check(list(pool.map(lambda query: search(query[None], 20)[0], queries)))
    for block in (1, 77, 2999, 5000):
        monkeypatch.setattr(exact, "BLOCK", block)
        check(search(queries, 20))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_score_has_the_same_bits_in_any_company(dtype):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((500, 384)).astype(dtype)
    query = rng.standard_normal(384).astype(np.float32)
    alone = [exact_scores(vectors, np.array([i]), query)[0] for i in range(500)]
    for some in (np.arange(500), rng.permutation(500)[:37], np.arange(0, 500, 3)):
        assert exact_scores(vectors, some, query).tolist() == [alone[i] for i in some]


def test_a_better_row_within_float32_error_is_not_lost():
    # Scores of about 1e4 apart by 2e-3: float32 sums of 1,000 products err by more.
    rng = np.random.default_rng(1)
    query = rng.standard_normal(1000).astype(np.float32) * 30
    vectors = np.tile(query / 90, (400, 1)) + rng.standard_normal((400, 1000)) * 2e-7
    vectors = vectors.astype(np.float32)
    norm = float(np.linalg.norm(vectors.astype(float), axis=1).max())
    [(places, _)] = ExactSearch(vectors, np.arange(400), norm=norm)(query[None], 5)
    scores = exact_scores(vectors, np.arange(400), query)
    assert places.tolist() == np.lexsort((np.arange(400), -np.round(scores, 4)))[:5].tolist()


def test_more_ties_than_fit_go_by_rank(monkeypatch):
    monkeypatch.setattr(exact, "BLOCK", 50)
    vectors = np.ones((1000, 4), np.float32)
    rank = np.arange(1000)[::-1].copy()
    [(places, scores)] = ExactSearch(vectors, rank, norm=2.0)(np.ones((1, 4), np.float32), 7)
    assert places.tolist() == list(range(999, 992, -1)) and set(scores) == {4.0}


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from(["float32", "float16"]))
def test_repeats_change_nothing_but_the_work(seed, k, dtype):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((8, 5)).astype(dtype)[rng.integers(0, 8, 90)]
    rank = rng.permutation(90)
    found = repeated(vectors, hashes(vectors), rank)
    for row in range(90):
        equal = [i for i in range(90) if (vectors[i] == vectors[row]).all() and rank[i] < rank[row]]
        assert dict(zip(*found.tolist(), strict=True)).get(row, 0) == len(equal)
    queries = rng.standard_normal((3, 5)).astype(np.float32)
    plain = ExactSearch(vectors, rank, norm=9.0)(queries, k)
    for (places, scores), (want, want_scores) in zip(
        ExactSearch(vectors, rank, norm=9.0, repeats=found)(queries, k), plain, strict=True
    ):
        assert places.tolist() == want.tolist() and scores.tolist() == want_scores.tolist()


def test_rows_that_only_share_a_hash_are_no_repeats():
    vectors = np.eye(3, dtype=np.float32)[[0, 1, 0, 2, 2]]
    hashed = np.array([7, 7, 7, 9, 9], np.uint64)
    assert repeated(vectors, hashed, np.arange(5)).tolist() == [[4], [1]]


def test_of_many_equal_rows_only_k_are_scored_again(monkeypatch):
    vectors = np.ones((5000, 4), np.float32)
    rank = np.arange(5000)[::-1].copy()
    asked = []
    scored = exact.exact_scores
    monkeypatch.setattr(
        exact, "exact_scores", lambda v, p, q: (asked.append(len(p)), scored(v, p, q))[1]
    )
    search = ExactSearch(vectors, rank, norm=2.0, repeats=repeated(vectors, hashes(vectors), rank))
    [(places, _)] = search(np.ones((1, 4), np.float32), 7)
    assert places.tolist() == list(range(4999, 4992, -1)) and sum(asked) == 7
