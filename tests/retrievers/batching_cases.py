"""Retrievers that tell what they were asked, wait, and break, as told."""

from __future__ import annotations

import threading

from retrievers import Passage


class Echo:
    """Makes k passages from each query; `batches` are the searches so far."""

    def __init__(self, fault=lambda query: None):
        self.batches, self.fault = [], fault
        self.go_on = threading.Event()
        self.go_on.set()
        self.searching = threading.Event()

    def search(self, queries, k):
        self.batches.append((list(queries), k))
        self.searching.set()
        assert self.go_on.wait(20)
        for query in queries:
            if (fault := self.fault(query)) is not None:
                raise fault
        return [expected(query, k) for query in queries]

    def hold(self):
        """Searches wait until `go_on` is set."""
        self.go_on.clear()
        self.searching.clear()


def expected(query, k):
    return [Passage(f"{query}/{n}", f"T{n}", f"says {query}", 9.0 - n) for n in range(k)]
