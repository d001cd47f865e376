"""Judging rankings against hand values, reading queries and judgements, and the whole bench."""

import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers import build
from retrievers.base import Passage, RetrieverError
from retrievers.measure.bench import bench, sample_queries, show
from retrievers.measure.judged import mean, ndcg, read_qrels, read_queries, recall

SCIFACT = Path(__file__).resolve().parents[3] / "shared" / "data" / "beir" / "scifact"


# ---- nDCG and recall ---------------------------------------------------------------------------


def test_ndcg_of_the_textbook_ranking():
    """Gains 3 2 3 0 1 2 of Järvelin & Kekäläinen's kind: DCG 6.861 of an ideal 7.141."""
    relevance = {"a": 3, "b": 2, "c": 3, "d": 0, "e": 1, "f": 2}
    dcg = 3 + 2 / math.log2(3) + 3 / 2 + 0 + 1 / math.log2(6) + 2 / math.log2(7)
    ideal = 3 + 3 / math.log2(3) + 2 / 2 + 2 / math.log2(5) + 1 / math.log2(6)
    assert dcg == pytest.approx(6.861, abs=5e-4) and ideal == pytest.approx(7.141, abs=5e-4)
    assert ndcg(list("abcdef"), relevance, 6) == pytest.approx(dcg / ideal)


@pytest.mark.parametrize(
    ("ranking", "relevance", "k", "expected"),
    [
        (["a"], {"a": 1}, 10, 1.0),
        (["x", "a"], {"a": 1}, 10, 1 / math.log2(3)),
        (["x", "a"], {"a": 1}, 1, 0.0),
        (["a"], {"a": 1, "b": 1}, 10, 1 / (1 + 1 / math.log2(3))),
        (["a"], {"a": 1, "b": 1}, 1, 1.0),  # the ideal ranking is cut as well
        (["a", "b"], {"a": -1, "b": 1}, 10, 1 / math.log2(3)),  # trec_eval: negative gains are 0
        ([], {"a": 1}, 10, 0.0),
        (["a"], {"a": 0}, 10, 0.0),
        (["a"], {}, 10, 0.0),
    ],
)
def test_ndcg_by_hand(ranking, relevance, k, expected):
    assert ndcg(ranking, relevance, k) == pytest.approx(expected)


@given(
    st.dictionaries(st.integers(0, 30).map(str), st.integers(-1, 3), max_size=12),
    st.permutations([str(place) for place in range(31)]),
    st.integers(1, 35),
)
def test_ndcg_is_between_0_and_1_and_1_for_the_ideal_order(relevance, ranking, k):
    ideal = sorted(ranking, key=lambda id_: -relevance.get(id_, 0))
    some = any(gain > 0 for gain in relevance.values())
    assert 0 <= ndcg(ranking, relevance, k) <= ndcg(ideal, relevance, k) + 1e-12
    assert ndcg(ideal, relevance, k) == pytest.approx(1.0 if some else 0.0)
    assert recall(ranking, relevance, 31) == (1.0 if some else 0.0)


def test_recall_counts_the_relevant_among_the_first_k():
    relevance = {"a": 1, "b": 2, "c": 0, "d": -1}
    assert recall(["a", "c", "d", "b"], relevance, 3) == 0.5
    assert recall(["a", "c", "d", "b"], relevance, 4) == 1.0
    assert recall(["a"], {"c": 0}, 3) == 0.0


def test_the_interval_is_196_standard_errors():
    values = [0.0, 0.5, 1.0, 1.0, 0.25]
    found = mean(values)
    assert found.mean == pytest.approx(0.55) and found.queries == 5
    assert found.half == pytest.approx(1.96 * statistics.stdev(values) / math.sqrt(5))
    assert math.isnan(mean([1.0]).half)
    with pytest.raises(ValueError, match="no values"):
        mean([])


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"_id": "q1", "text": "a b", "metadata": {}}\n', {"q1": "a b"}),
        (
            '{"id": 7, "text": "a\\u2028b"}\n\n{"_id": "8", "text": ""}\n',
            {"7": "a\u2028b", "8": ""},
        ),
        ("q1\ta b\tc\r\nq2\td\n", {"q1": "a b\tc", "q2": "d"}),
        ("who wrote Hamlet\n\nwhat\u2028now", {"1": "who wrote Hamlet", "3": "what\u2028now"}),
        ("\ufeffq1\ta\n", {"q1": "a"}),
    ],
)
def test_queries_of_each_form(tmp_path, text, expected):
    path = tmp_path / "queries"
    path.write_bytes(text.encode())
    assert read_queries(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"_id": "1", "text": "a"}\n{"_id": 2}\n', 'q:2: a query needs "_id" and "text"'),
        (b'{"_id": "1", "text": "a"}\n{"_id"', "q:2: no JSON"),
        (b'{"_id": true, "text": "a"}', "q:1: a query needs"),
        (b"1\ta\nb\n", "q:2: no tab"),
        (b"1\ta\n1\tb\n", "q:2: query id '1' occurs twice"),
        (b"\n \n", "q: no query in it"),
        (b"\xff\xfe", "q: cannot read it"),
        (None, "q: cannot read it: No such file"),
    ],
)
def test_bad_queries_name_file_and_line(tmp_path, text, message):
    path = tmp_path / "q"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(RetrieverError, match=message):
        read_queries(path)


@pytest.mark.parametrize(
    "text",
    [
        "1 0 d1 1\n1 0 d2 0\n2 Q0 d1 2\n",
        "1\t0\td1\t1\n1\t0\td2\t0\n2\t0\td1\t2\n",
        "query-id\tcorpus-id\tscore\n1\td1\t1\n1\td2\t0\n\n2\td1\t2\r\n",
    ],
)
def test_judgements_of_each_form(tmp_path, text):
    path = tmp_path / "qrels"
    path.write_bytes(text.encode())
    assert read_qrels(path) == {"1": {"d1": 1, "d2": 0}, "2": {"d1": 2}}


def test_beir_ids_may_hold_spaces(tmp_path):
    path = tmp_path / "qrels"
    path.write_text("my query\tmy passage\t1\n", "utf-8")
    assert read_qrels(path) == {"my query": {"my passage": 1}}


@pytest.mark.parametrize("line", ["1 0 d1", "1 0 d1 high", "1 0 d1 1 x", "1", "1\td1\t0.5"])
def test_bad_judgements_name_file_and_line(tmp_path, line):
    path = tmp_path / "qrels"
    path.write_text(f"1 0 d1 1\n{line}\n", "utf-8")
    with pytest.raises(RetrieverError, match="qrels:2: needs query"):
        read_qrels(path)
    path.write_text("query-id\tcorpus-id\tscore\n", "utf-8")
    with pytest.raises(RetrieverError, match="no judgement"):
        read_qrels(path)


# ---- the whole ---------------------------------------------------------------------------------

TEXTS = [
    Passage("hamlet", "Hamlet", "a tragedy that Shakespeare wrote about a prince of Denmark"),
    Passage("faust", "Faust", "a tragedy that Goethe wrote about a scholar and the devil"),
    Passage("empty", "", ""),
    Passage("emma", "Emma", "a novel that Austen wrote"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "index"
    build(TEXTS, out)
    return out


def test_bench_times_each_number_of_threads_and_judges(index, tmp_path, capsys):
    queries, qrels = tmp_path / "q.tsv", tmp_path / "qrels.txt"
    queries.write_text("1\tscholar devil\n2\tprince\n3\tzzz\n4\tunjudged\n", "utf-8")
    # The one relevant passage is first; one of two is found; none is; nothing relevant: no part.
    qrels.write_text("1 0 faust 1\n2 0 hamlet 1\n2 0 emma 1\n3 0 emma 1\n4 0 emma 0\n", "utf-8")
    report = bench(index, queries=queries, qrels=qrels, k=3, threads=(1, 4))
    assert [(t.threads, t.batch) for t in report.timings] == [(1, 64), (1, 1), (4, 1)]
    for timing in report.timings:
        assert timing.queries_per_s > 0 and timing.cpu_ms >= 0
        assert 0 < timing.p50_ms <= timing.p99_ms
    half = 1 / (1 + 1 / math.log2(3))
    assert report.quality["nDCG@10"].mean == pytest.approx((1 + half + 0) / 3)
    assert report.quality["recall@3"].mean == pytest.approx((1 + 0.5 + 0) / 3)
    assert report.quality["recall@3"].queries == 3
    assert (report.queries, report.k) == (4, 3)
    show(report)
    printed = capsys.readouterr().out
    assert f"recall@3: 0.5000 ± {report.quality['recall@3'].half:.4f} (95 %, 3 queries)" in printed
    assert "nothing is judged relevant for 1 of 4 queries" in printed and "words" not in printed


def test_without_queries_they_are_words_of_the_passages(index, capsys):
    sampled = sample_queries(index)
    assert len(sampled) == 1000 and sampled == sample_queries(index)
    assert all(any(query in p.text for p in TEXTS) for query in sampled)
    assert {len(query.split()) for query in sampled} == {5, 8}
    report = bench(index, k=1)
    assert report.queries == 1000 and report.quality == {} and report.sampled
    show(report)
    assert "queries: runs of 8 words from its passages" in capsys.readouterr().out
    assert report.private_mb is None or report.private_mb > 1


def test_a_corpus_will_do(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "1", "contents": "a fox and a dog"}')
    report = bench(tmp_path / "c.jsonl", k=1)
    assert (report.where, report.queries) == (str(tmp_path / "c.jsonl"), 1000)


def test_an_index_of_empty_passages_asks_for_queries(tmp_path):
    with pytest.warns(UserWarning):
        build([Passage("a", "", "")], tmp_path / "index")
    with pytest.raises(RetrieverError, match="no text to take queries from; give queries"):
        sample_queries(tmp_path / "index")
    with pytest.raises(RetrieverError, match="no passages of ours there"):
        sample_queries("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"threads": ()}, "threads"),
        ({"threads": (1, 0)}, r"threads must be numbers from 1 on, got \[1, 0\]"),
        ({"qrels": Path("x")}, "need the queries"),
    ],
)
def test_bad_options_are_one_line(index, options, message):
    with pytest.raises(RetrieverError, match=message):
        bench(index, **options)


def test_ids_that_do_not_agree_are_said_so(index, tmp_path):
    (tmp_path / "q").write_text("who wrote it\n", "utf-8")
    (tmp_path / "qrels").write_text("q1 0 faust 1\n", "utf-8")
    with pytest.raises(RetrieverError, match="do the ids agree"):
        bench(index, queries=tmp_path / "q", qrels=tmp_path / "qrels")


@pytest.mark.skipif(not SCIFACT.is_dir(), reason=f"no SciFact in {SCIFACT}")
def test_scifact_has_the_published_ndcg(tmp_path):
    """Thakur et al. 2021, as Anserini publishes it for BM25 with k1 = 0.9, b = 0.4: 0.679."""
    build(SCIFACT / "corpus.jsonl", tmp_path / "index")
    report = bench(
        tmp_path / "index", queries=SCIFACT / "queries.tsv", qrels=SCIFACT / "qrels.txt", k=10
    )
    assert report.quality["nDCG@10"].queries == 300
    assert abs(report.quality["nDCG@10"].mean - 0.679) <= 0.001
