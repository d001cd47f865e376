"""What docs/benchmarks.md says of runs is run."""

import json
import re

from tests.end_to_end.test_docs import DOCS, run_blocks

PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
SECTION = re.search(r"^## Runs$.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[0]


def test_its_blocks_run(tmp_path):
    run_blocks(SECTION, tmp_path)
    for run in ("both/arith", "both/tinyworld", "strict"):
        summary = json.loads((tmp_path / "runs" / run / "summary.json").read_text())
        assert summary["avg@4"] is not None and summary["episodes"] == 40
        assert summary["usage"]["cost_usd"] is None
    [results] = tmp_path.glob("exported/scripted__adder/results_*.json")
    found = json.loads(results.read_text())
    for key in re.findall(r"^\| `([\w-]+)\.(?:SUITE|model_args)`", SECTION, re.M):
        assert key in found
