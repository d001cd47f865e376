"""docs/retrievers.md: its blocks run and print what it says, and its tables name what there is."""

import json
import re
import socket
from pathlib import Path

from retrievers import Passage, load_corpus
from retrievers.fetch.wiki18 import next_steps
from retrievers.indexes.build_and_load import BACKENDS
from tests.end_to_end.test_docs import DOCS, run_blocks

PAGE = (DOCS / "retrievers.md").read_text(encoding="utf-8")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_blocks_run_and_print_what_the_page_says(tmp_path):
    run_blocks(re.sub(r"\b8000\b", str(free_port()), PAGE), tmp_path)


def first_cells(title):
    rows = re.search(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    return [row.split(" | ")[0].strip("| ") for row in rows.splitlines()]


def test_every_backend_is_in_the_table():
    assert {cell.strip("`") for cell in first_cells("backend")} - {"a server's URL"} == set(
        BACKENDS
    )


def test_the_rows_of_the_table_of_formats_are_passages(tmp_path):
    rows = re.findall(r"^\| JSONL.*?`(\{.*?\})`", PAGE, re.MULTILINE)
    assert len(rows) == 2
    for row in rows:
        (tmp_path / "c.jsonl").write_text(row)
        assert json.loads(row)
        assert list(load_corpus(tmp_path / "c.jsonl")) == [Passage("1", "Hamlet", "A play.")]


def test_the_commands_for_wiki_18_are_those_that_fetch_prints():
    printed = next_steps("wiki-18", Path("wiki-18"), ["corpus,bm25,e5"])
    lines = [line.strip() for line in PAGE.partition("## wiki-18")[2].splitlines()]
    wanted = [line for line in printed if not line.startswith("# the field's own vectors")]
    place = -1
    for line in wanted:
        place = lines.index(line, place + 1)


def test_it_is_read_in_ten_minutes():
    assert len(PAGE.splitlines()) <= 200
