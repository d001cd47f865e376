"""What finding passages costs: building an index, holding it, searching it.

Each is a script that prints its tables; the other side is measured in the same run where it is
installed:

    python -m benchmarks.speed.retrieval.bm25 --passages 100000 --passages 1000000
    python -m benchmarks.speed.retrieval.dense
    python -m benchmarks.speed.retrieval.server

The corpus is `benchmarks.speed.retrieval.synthetic`, the same on every machine.
"""
