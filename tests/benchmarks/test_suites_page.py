"""What docs/benchmarks.md says of suites is run and compared with the specifications."""

import json
import re

from benchmarks.suites import suites
from tests.end_to_end.test_docs import DOCS, blocks, run_blocks

PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
SECTION = re.search(r"^## Suites$.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[0]


def test_its_blocks_run(tmp_path):
    runnable = [(lang, block) for lang, block in blocks(SECTION) if lang != "console"]
    run_blocks("".join(f"```{lang}\n{block}```\n" for lang, block in runnable), tmp_path)
    summary = json.loads((tmp_path / "runs" / "sums" / "summary.json").read_text())
    assert summary["questions"] == 2 and summary["avg@2"] is not None


def test_its_table_is_that_of_the_specifications():
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (\w+) \|$", SECTION, re.M)
    told = set()
    for names, counts, environment, copy in rows:
        for name, count in zip(re.findall(r"`(\w+)`", names), counts.split(", "), strict=True):
            one = suites()[name]
            assert one.rows == int(count) and one.env.id in environment, name
            assert (one.env.args.get("grading") == "squad") == ("squad" in environment), name
            wanted = "embedded" if one.tasks else "pinned" if one.origin else "unpinned"
            assert copy == wanted, name
            told.add(name)
    assert suites().keys() - told == {"hotpotqa_500", "2wiki_500", "musique_500", "efficientqa"}
