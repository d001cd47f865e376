"""Fetching the field's Lucene index and corpus, and doing what the fetch prints."""

from retrievers import load
from tests.retrievers.test_fetch_hub import Hub
from tests.retrievers.wiki_cases import WIKI, files, follow


def test_corpus_and_index_from_the_hub_to_a_server(anserini, tmp_path):
    rows = [{"id": p.id, "contents": f'"{p.title}"\n{p.text}'} for p in WIKI]
    hub = Hub(files(lucene=anserini(rows)))
    try:
        found = follow(hub, tmp_path)
    finally:
        hub.stop()
    assert list(found) == ["index", "lucene"]
    assert [p[:3] for p in found["index"]] == [p[:3] for p in found["lucene"]]
    assert {p.title for p in found["lucene"]} == {"Moby-Dick", "Whale"}
    retriever = load(tmp_path / "a wiki" / "lucene")
    assert retriever.search(["whale"], 2)[0] == found["lucene"]
    retriever.close()
