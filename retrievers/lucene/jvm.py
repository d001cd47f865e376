"""Lucene and Anserini through pyjnius; the only file that imports jnius.

Java does the work: Anserini's SimpleSearcher (which Pyserini's LuceneSearcher calls), its analyser
and its documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from math import log1p
from typing import Any

Hit = tuple[str, float, str | None, str | None]  # id, score, stored row, stored raw or contents

_CONTENTS = "contents"


class Java:
    """The JVM and what is open in it; each public method is a command."""

    def __init__(self, jar: str, options: list[str]) -> None:
        jnius_config: Any = import_module("jnius_config")
        jnius_config.set_classpath(jar)
        jnius_config.add_options(*options)
        import jnius

        self._detach, self._java_exception = jnius.detach, jnius.JavaException
        # Reflection over protected members would double the time to start.
        self._class = partial(jnius.autoclass, include_protected=False, include_private=False)
        self.version: str = self._class("org.apache.lucene.util.Version").LATEST.toString()
        analyzers = self._class("io.anserini.analysis.DefaultEnglishAnalyzer")
        self._analyzer = analyzers.newDefaultInstance()
        self._searcher: Any = None
        self._reader: Any = None
        self._writer: Any = None

    def analyze(self, texts: Sequence[str]) -> list[list[str]]:
        """The index terms of each text."""
        utils = self._class("io.anserini.analysis.AnalyzerUtils")
        return [list(utils.analyze(self._analyzer, text).toArray()) for text in texts]

    # Searching

    def open(self, folder: str, k1: float, b: float) -> tuple[int, dict[str, str] | None]:
        """Open an index; returns its number of documents and the stored fields of the first."""
        searcher = self._class("io.anserini.search.SimpleSearcher")(folder)
        searcher.set_bm25(k1, b)
        documents = searcher.get_total_num_docs()
        searcher.search("a warm start", 1)  # also makes the searcher that threads then share
        self._folder, self._reader = folder, None  # of an earlier index
        first = None
        if documents:
            fields = searcher.doc(0).getFields()
            stored = [fields.get(i) for i in range(fields.size())]
            first = {field.name(): field.stringValue() for field in stored}
        self._searcher = searcher
        return documents, first

    def ids(self, documents: Sequence[int]) -> list[str]:
        """The ids of the documents with these numbers of Lucene's."""
        return [self._searcher.doc(number).get("id") for number in documents]

    def search(self, queries: Sequence[str], k: int, threads: int) -> list[list[Hit]]:
        """The k best documents for each query, as Anserini ranks and scores them."""
        too_many = {i: q for i, text in enumerate(queries) if (q := self._heaviest(text))}
        batch = [i for i in range(len(queries)) if i not in too_many]
        if len(batch) == 1 or threads == 1:
            found = {i: self._searcher.search(queries[i], k) for i in batch}
        else:
            texts, names = self._list(queries[i] for i in batch), self._list(map(str, batch))
            answers = self._searcher.batch_search(texts, names, k, threads)
            found = {i: answers.get(str(i)) for i in batch}
        found |= {i: self._searcher.search(query, k) for i, query in too_many.items()}
        return [[_hit(document) for document in found[i]] for i in range(len(queries))]

    def _list(self, strings: Iterable[str]) -> Any:
        java_list = self._class("java.util.ArrayList")()
        for string in strings:
            java_list.add(string)
        return java_list

    def _heaviest(self, text: str) -> Any:
        """A query of the heaviest terms if `text` has more than Lucene takes, else None.

        Weight: occurrences times idf, as in the embedded BM25; equal weights go by term.
        """
        limit = self._class("org.apache.lucene.search.IndexSearcher").getMaxClauseCount()
        if len(text) <= limit:
            return None
        counts = Counter(self.analyze([text])[0])
        if len(counts) <= limit:
            return None
        return self._query(counts, limit)

    def _query(self, counts: Counter[str], limit: int) -> Any:
        term_class = self._class("org.apache.lucene.index.Term")
        term_query = self._class("org.apache.lucene.search.TermQuery")
        boost_query = self._class("org.apache.lucene.search.BoostQuery")
        builder = self._class("org.apache.lucene.search.BooleanQuery$Builder")()
        should = self._class("org.apache.lucene.search.BooleanClause$Occur").SHOULD
        if self._reader is None:  # SimpleSearcher keeps its own to itself
            readers = self._class("org.apache.lucene.index.DirectoryReader")
            self._reader = readers.open(self._directory(self._folder))
        searchable = self._reader.getDocCount(_CONTENTS)
        weights = []
        for word, count in counts.items():
            term = term_class(_CONTENTS, word)
            df = self._reader.docFreq(term)
            if df:
                idf = log1p((searchable - df + 0.5) / (df + 0.5))
                weights.append((-count * idf, word, count, term))
        for _, _, count, term in sorted(weights)[:limit]:
            builder.add(boost_query(term_query(term), float(count)), should)
        return builder.build()

    # Indexing

    def create(self, folder: str, threads: int) -> None:
        """Begin a new index."""
        config = self._class("org.apache.lucene.index.IndexWriterConfig")(self._analyzer)
        heap = self._class("java.lang.Runtime").getRuntime().maxMemory()
        config.setRAMBufferSizeMB(min(heap / 4, 1 << 30) / (1 << 20))
        config.setUseCompoundFile(False)
        writers = self._class("org.apache.lucene.index.IndexWriter")
        self._writer = writers(self._directory(folder), config)
        self._threads = ThreadPoolExecutor(threads)
        self._templates = [_Template(self._class) for _ in range(threads)]

    def add(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Index documents given as (row, id, contents)."""
        count = len(self._templates)
        parts = [(template, rows[i::count]) for i, template in enumerate(self._templates)]
        for done in [self._threads.submit(self._add, *part) for part in parts]:
            done.result()

    def _add(self, template: _Template, rows: Sequence[tuple[int, str, str]]) -> None:
        try:
            for row, id_, contents in rows:
                self._writer.addDocument(template.fill(row, id_, contents))
        except self._java_exception as error:
            error.innermessage = f"passage {id_[:80]!r}: {error.innermessage}"
            raise
        finally:
            self._detach()

    def finish(self) -> int:
        """Write what remains; returns the number of documents in the index."""
        self._threads.shutdown()
        self._writer.commit()
        documents: int = self._writer.getDocStats().numDocs
        self._writer.close()
        self._writer = None
        return documents

    def _directory(self, folder: str) -> Any:
        path = self._class("java.io.File")(folder).toPath()
        return self._class("org.apache.lucene.store.FSDirectory").open(path)


class _Template:
    """A document made by Anserini itself, so of its fields, and filled anew for each passage.

    One more stored field, `row`, names the passage: the texts are not stored again.
    """

    def __init__(self, java_class: Any) -> None:
        as_json = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
        source = java_class("io.anserini.collection.JsonCollection$Document")
        generator = java_class("io.anserini.index.generator.DefaultLuceneDocumentGenerator")()
        self._bytes = java_class("org.apache.lucene.util.BytesRef")
        self._document = generator.createDocument(
            source(as_json.readTree('{"id": "x", "contents": "x"}'))
        )
        fields = self._document.getFields()
        self._id, self._id_order, self._contents = (fields.get(i) for i in range(fields.size()))
        self._row = java_class("org.apache.lucene.document.StoredField")("row", 0)
        self._document.add(self._row)

    def fill(self, row: int, id_: str, contents: str) -> Any:
        """The document with these values; valid until the next call."""
        self._row.setLongValue(row)
        self._id.setStringValue(id_)
        self._id_order.setBytesValue(self._bytes(id_.encode()))
        self._contents.setStringValue(contents)
        return self._document


def _hit(scored: Any) -> Hit:
    fields = scored.lucene_document
    row = fields.get("row")
    text = None if row is not None else fields.get("raw") or fields.get(_CONTENTS)
    return scored.docid, scored.score, row, text
