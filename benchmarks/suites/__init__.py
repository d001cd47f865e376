"""Benchmark suites: what is asked, where it comes from, how it is graded.

    >>> tasks = load_suite("math500", "math500.jsonl")
    >>> fingerprint(tasks) == suite("math500").sha256   # the canonical content?
    True

All suites stand in `suites.yaml`; one of yours is FILE.yaml#NAME. Problem texts are not in this
repository.
"""

from benchmarks.suites.loading import (
    SuiteWarning,
    content_line,
    data_file,
    fingerprint,
    load_suite,
)
from benchmarks.suites.spec import Environment, Hub, Suite, check_blind, read_suites, suite, suites

__all__ = [
    "Environment",
    "Hub",
    "Suite",
    "SuiteWarning",
    "check_blind",
    "content_line",
    "data_file",
    "fingerprint",
    "load_suite",
    "read_suites",
    "suite",
    "suites",
]
