"""What the commands print is readable in a terminal of 80 columns, numbers in one way."""

import pytest
from typer.testing import CliRunner

from benchmarks.cli import EXAMPLES, app
from benchmarks.cli.notes import counted, seconds, signed
from benchmarks.suites import suites


def bench(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_every_help_ends_with_examples(command):
    printed = bench(command, "--help").stdout
    shown = " ".join(printed[printed.index("Examples:") :].split())
    for example in EXAMPLES[command]:
        assert " ".join(example.split()) in shown
        assert example.startswith(f"mas-bench {command}")


def test_the_list_has_a_line_or_two_for_each_suite():
    printed = bench("list").stdout
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    assert len(rows) < 1.3 * len(suites()) and max(map(len, rows)) <= 80
    for name, one in suites().items():
        (row,) = [row for row in rows if row.split()[1] == name]
        assert f" {one.rows:,} " in row and ("unpinned" in row or "content" in row or one.tasks)
        assert one.licence in printed


def test_diagnose_is_whole_at_80_columns(tmp_path):
    played = bench("run", "arith", "--policy", "scripted:adder", "--k", 4, "--limit", 60,
                   "--env-arg", "max_rounds=3", "--out", tmp_path / "run")  # fmt: skip
    assert played.exit_code == 0, played.output
    printed = bench("diagnose", tmp_path / "run").stdout
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    assert max(map(len, rows)) <= 80 and "…" not in printed.replace("… had it always said", "")
    intervals = [cell for row in rows for cell in row.split("│") if " to " in cell or "(" in cell]
    assert intervals and all(cell.count("(") == cell.count(")") == 1 for cell in intervals)
    assert "verifier_0" in printed and "0.000" not in printed


def test_numbers_are_written_in_one_way():
    assert (counted(1, "row"), counted(0, "row"), counted(1342, "row")) == (
        "1 row", "0 rows", "1,342 rows",
    )  # fmt: skip
    shown = {0.0: "+0.0", -0.04: "+0.0", -9.25: "−9.2", 3.06: "+3.1"}
    assert {number: signed(number) for number in shown} == shown
    times = {0.0: "< 0.001", 2.3e-5: "< 0.001", 0.0451: "0.045", 3.14159: "3.1", 99.96: "100.0",
             1234.5: "1,234"}  # fmt: skip
    assert {second: seconds(second) for second in times} == times
