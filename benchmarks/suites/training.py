"""The recipes' training sets, split so that no question trained on is measured on.

The split is a hash of the question as `whole` sees it: copies of a question are on one side.

    dev       2 % of the hash range, for evaluation while training: each question once, in the order
              of their hashes, so that the first n are a sample of all
    train     the rest
    overlap   questions that touch a benchmark (`contamination`), in neither
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.suites.contamination import Benchmarks
from benchmarks.suites.golds import golds, question
from benchmarks.suites.loading import load_suite
from benchmarks.suites.rows import SUFFIXES, read_rows
from benchmarks.suites.spec import Suite, read_suites, suites
from benchmarks.suites.words import whole
from mas_envs.errors import BadFile, UserError
from mas_envs.files import whole_file
from mas_envs.tasks import TaskSet

TRAINING_FILE = Path(__file__).parent / "training.yaml"
DEV = 0.02


@cache
def training_sets() -> dict[str, Suite]:
    """The training sets that recipes name."""
    return read_suites(TRAINING_FILE)


def split_of(text: str) -> str:
    """ "train" or "dev", by the question's text alone."""
    return "dev" if _place(text) / 2**64 < DEV else "train"


def _place(text: str) -> int:
    """Where the question's hash lies in 0 … 2^64 - 1."""
    digest = hashlib.blake2b(whole(text).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def at_hand(folder: Path | None, files: Mapping[str, Path] | None = None) -> dict[str, TaskSet]:
    """The suites that can be read: embedded ones, `files` by name, and those in `folder`.

    Raises as `load_suite`.
    """
    found: dict[str, TaskSet] = {}
    for name, spec in suites().items():
        there = folder and any((folder / f"{name}{end}").is_file() for end in SUFFIXES)
        if spec.tasks is not None or there:
            found[name] = load_suite(name, None if spec.tasks is not None else folder)
    for name, file in (files or {}).items():
        found[name] = load_suite(name, file)
    return found


def write_training(spec: Suite, source: Path, out: Path, benchmarks: Benchmarks) -> Counter[str]:
    """Write the questions of a fetched training set as JSONL that `mas_envs.load_tasks` reads.

    Each row has question, answer and "split" (train, dev or overlap). Rows without a question or a
    gold are left out, and copies of a dev question. Returns how many rows each split has, and how
    many were "left out". Raises `BadFile` when nothing remains.
    """
    counts: Counter[str] = Counter()
    dev: dict[int, bytes] = {}
    with whole_file(out) as temporary, temporary.open("wb") as file:
        for number, row in read_rows(source):
            try:
                asked, gold = question(spec, row), golds(spec, row)
            except UserError:
                counts["left out"] += 1
                continue
            touched = next(benchmarks.matches(asked, number), None) is not None
            split = "overlap" if touched else split_of(asked)
            line = msgspec.json.encode({"question": asked, "answer": gold, "split": split}) + b"\n"
            if split == "dev" and dev.setdefault(_place(asked), line) is not line:
                counts["left out"] += 1
                continue
            counts[split] += 1
            if split != "dev":
                file.write(line)
        file.writelines(line for _, line in sorted(dev.items()))
        if not counts["train"]:
            keys = " or ".join([*spec.question, *spec.answer])
            raise BadFile(source, f"no training question ({keys}) in {counts.total()} rows",
                          fix="is it the data set that the spec names?")  # fmt: skip
    return counts
