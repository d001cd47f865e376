"""The report's table in all its forms: what it says, and that it fits where it is shown."""

import io
import re
import shutil
import string
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.contents import foreign, heading
from benchmarks.report import latex, markdown, terminal
from benchmarks.report.latex import tex
from benchmarks.report.table import MEAN, Number, ScoreTable
from benchmarks.suites import suite


def bench(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


TITLES = ["AIME 2024†*", "AIME 2025", "AMC 2023", "MATH-500", "Minerva Math", "OlympiadBench",
          "Natural Questions", "HotpotQA, R1-Searcher's 500"]  # fmt: skip
LONG_NAMES = ["Qwen3-4B-Instruct-2507", "Dr. MAS, separate policies", "runs/long/path_of_a_run",
              r"100%_& $x^2$ \input{x} #{~}", "e"]  # fmt: skip


def made_up(suites, names):
    """A table whose numbers are as wide as they can be: 50.0 +13.3 −11.6."""
    columns = TITLES[:suites] + ([MEAN] if suites > 1 else [])
    cells = {(one, metric): Number(50.0, 38.4, 63.3) for one in columns
             for metric in ("avg@16", "pass@16")}  # fmt: skip
    notes = ["* aime24: 5 of the suite's 30 questions"]
    return ScoreTable(columns, ("avg@16", "pass@16"), dict.fromkeys(names, cells), notes)


TABLES = [(1, ["a"]), (1, LONG_NAMES), (2, ["one round", "three rounds"]), (2, LONG_NAMES[:3]),
          (6, ["base", "GRPO", "Dr. MAS"]), (6, ["a"]), (8, LONG_NAMES)]  # fmt: skip


def test_latex_fits_the_page_of_an_article(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex")
    tables = "\n\\newpage\n".join(latex(made_up(*one)) for one in TABLES)
    (tmp_path / "t.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{tables}\end{{document}}"
    )
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
                          cwd=tmp_path, check=True, stdout=subprocess.PIPE)  # fmt: skip
    assert b"Overfull" not in done.stdout
    if shutil.which("pdftotext"):
        subprocess.run(["pdftotext", "t.pdf"], cwd=tmp_path, check=True)
        text = " ".join((tmp_path / "t.txt").read_text().split())
        assert text.count("5 of the suite’s 30 questions") == len(TABLES)
        assert text.count("95 % intervals over questions: ± is the longer side") == len(TABLES)


def test_latex_keeps_the_papers_layout_where_it_fits():
    paper, long = latex(made_up(2, ["base", "GRPO"])), latex(made_up(6, ["base", "GRPO"]))
    assert r"\multicolumn{2}{c}{AIME 2025}" in paper and r"\cmidrule(lr){2-3}" in paper
    assert long.count("avg@16 &") == long.count("pass@16 &") == 7 and "multicolumn" not in long


@pytest.mark.parametrize(("suites", "names"), TABLES)
def test_the_table_fits_a_terminal_of_80_columns(suites, names):
    table = made_up(suites, names)
    shown = io.StringIO()
    Console(file=shown, width=80).print(*terminal(table, 80))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    whole = shown.getvalue().count("50.0 +13.3 −11.6")
    assert whole == 2 * len(table.columns) * len(names), "no number is broken"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Runs of a suite that is named like the paper's: own/a and own/b, five of its six sums."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "six.yaml").write_text("aime24: {data: six.jsonl}")
    rows = (f'{{"question": "{n} + 1 = ?", "answer": "{n + 1}"}}\n' for n in range(6))
    (folder / "six.jsonl").write_text("".join(rows))
    for seed, name in enumerate("ab"):
        done = bench("run", f"{folder / 'six.yaml'}#aime24", "--policy", "scripted:adder", "--k", 2,
                     "--limit", 5, "--seed", seed, "--out", folder / name)  # fmt: skip
        assert done.exit_code == 0, done.output
    return folder


def test_other_questions_than_the_suites_are_marked_in_every_form(own, tmp_path):
    canonical = suite("aime24").sha256[:12]
    done = bench("report", own / "a", own / "b", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "aime24†*" in done.stdout and "AIME 2024" not in done.stdout
    page = (tmp_path / "index.html").read_text("utf-8")
    assert ">aime24†* avg@2<" in page
    table = (tmp_path / "table.md").read_text("utf-8")
    assert r"aime24†\*" in table
    for text in (done.stderr, page, table):
        assert re.search(
            rf"† aime24: content [0-9a-f]+… is NOT the canonical {canonical}… of", text
        )
    text = (tmp_path / "table.tex").read_text("utf-8")
    assert r"{aime24$\dagger${*}}" in text
    (notes,) = [line for line in text.splitlines() if r"\footnotesize" in line]
    assert r"$\dagger$ aime24: content " in notes and r"\ldots{} is NOT the canonical" in notes
    assert "{*} aime24: 5 of the suite's 6 questions" in notes
    for command in (("report", own / "a"), ("compare", own / "a", own / "b")):
        assert f"is NOT the canonical {canonical}… of AIME 2024" in bench(*command).stderr


def test_contents():
    aime = suite("aime24")
    canonical = {"name": "aime24", "rows": 30, "sha256": aime.sha256}
    assert foreign(canonical) is None and heading(canonical) == "AIME 2024"
    assert foreign({"name": "mine", "rows": 1, "sha256": "0"}) is None
    unpinned = {"name": "popqa", "rows": 14267, "sha256": "0" * 64}
    assert foreign(unpinned) is None and heading(unpinned) == "PopQA"
    few = unpinned | {"rows": 6}
    assert "6 questions is NOT that of PopQA" in foreign(few) and heading(few) == "popqa"
    assert heading({"name": "arith", "rows": 240, "sha256": suite("arith").sha256}) == "arith"


@given(st.text(alphabet=st.one_of(st.sampled_from(string.punctuation + "\n\r\t\u2028"),
                                  st.characters(codec="utf-8")), min_size=1))  # fmt: skip
def test_no_name_is_read_as_markup(name):
    number = Number(50.0, 40.0, 60.0)
    table = ScoreTable([name], ("avg@4", "pass@4"), {name: {(name, "avg@4"): number}}, [name])
    signs = r"\$(\\pm|-|\\cdot|\\dagger|\\to|\\times)\$"
    left = re.sub(
        rf"\\text\w+\{{\}}|\\ldots\{{\}}|{signs}|\\[&%$#_{{}}]|\{{[\[*]\}}", "", tex(name)
    )
    assert not set(left) & set(r"&%$#_{}\~^[*") and len(left.splitlines()) <= 1
    for wide in (False, True):  # beside many suites it stands in a column's head
        more = [name, *"abcd"] if wide else [name]
        table = replace(table, columns=more)
        lines = latex(table).split("\n")
        assert len([line for line in lines if line.endswith(r"\\")]) in (3, 1 + 2 * len(more))
        assert sum(line.startswith("%") for line in lines) == 1
        assert latex(table).count("{") - latex(table).count(r"\{") == (
            latex(table).count("}") - latex(table).count(r"\}")
        )
    table = replace(table, columns=[name])
    text = markdown(table)
    rows = text.split("\n\n")[0].split("\n")
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 3 for row in rows)
    assert not re.search(r"(?<!\\)(?:\\\\)*<", text)
    assert [one.row_count for one in terminal(table)] == [1]
