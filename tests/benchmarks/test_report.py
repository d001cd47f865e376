"""The report: its numbers are the stored episodes', its texts cannot be misread as markup."""

import json
import math
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import combinations
from statistics import mean as average

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.report import latex, markdown, score_table, systems
from benchmarks.report.render import NOT_RUN, UNKNOWN, sides
from benchmarks.report.table import MEAN, Number, mean
from benchmarks.run_folder import read_run
from benchmarks.speed import report as speed_report
from mas_envs.episodes.schema import Episode, ToolResult
from mas_envs.episodes.store import read_episodes, write_episodes
from mas_envs.errors import BadFile, UserError
from tests.end_to_end.test_docs import DOCS, run_blocks
from tests.mas_envs.test_viewer_folder import read

NAME = "</script><img src>&"

POLICY = """
import random, re
from mas_envs.policies.base import Response

def act(request):
    rng = random.Random(f"{request.seed}")
    if request.role == "verifier":
        text = rng.choice(["<verify>approve</verify>", "<verify>reject</verify>", "who knows?"])
    elif request.role == "search":
        text = "<search>who lives where</search>"
    elif request.role == "answer":
        text = "<answer>nobody</answer>"
    else:
        numbers = re.search(r"[0-9]+( ?[+] ?[0-9]+)+", request.messages[-1].content)[0]
        total = sum(map(int, re.findall("[0-9]+", numbers))) + rng.choice([0, 0, 1])
        text = f"\\\\boxed{{{total}}}"
    return Response(text=text, prompt_tokens=50, response_tokens=7)
"""


def bench(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """runs/a and runs/b (arith and tinyworld), runs/part (arith, samples missing)."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "reporting_policy.py").write_text(POLICY)
    sys.path.insert(0, str(folder))
    common = ["--policy", "scripted:reporting_policy:act", "--k", 4, "--limit", 5]
    for name, seed in (("a", 0), ("b", 1)):
        done = bench("run", "arith", "tinyworld", *common, "--seed", seed, "--out", folder / name)
        assert done.exit_code == 0, done.output
    shutil.copytree(folder / "a" / "arith", folder / "part")
    some = list(read_episodes(folder / "part" / "episodes"))[:-3]
    shutil.rmtree(folder / "part" / "episodes")
    write_episodes(folder / "part" / "episodes", some)
    sys.path.remove(str(folder))
    return folder


def by_hand(folder):
    """(avg@4, pass@4) counted from the conversations."""
    right = defaultdict(list)
    for episode in read_episodes(folder / "episodes"):
        right[episode.task].append(episode.grade.correct)
    return (
        100 * average(map(average, right.values())),
        100 * average(any(c) for one in right.values() for c in combinations(one, 4)),
    )


def test_the_table_is_what_counting_by_hand_gives(runs):
    table = score_table(systems([f"Dr. MAS={runs / 'a'}", str(runs / "b"), str(runs / "part")]))
    assert (table.columns, table.metrics) == (["arith", "tinyworld", MEAN], ("avg@4", "pass@4"))
    assert list(table.rows) == ["Dr. MAS", "b", "part"]
    for name, folder in (("Dr. MAS", "a"), ("b", "b")):
        numbers = {suite: by_hand(runs / folder / suite) for suite in ("arith", "tinyworld")}
        for place, metric in enumerate(table.metrics):
            for suite, found in numbers.items():
                number = table.rows[name][suite, metric]
                assert number.value == pytest.approx(found[place])
                assert number.low <= number.value <= number.high
                summary = json.loads((runs / folder / suite / "summary.json").read_text())
                assert (number.low, number.high) == pytest.approx(
                    (summary[metric]["low"], summary[metric]["high"])
                )
            whole = average(found[place] for found in numbers.values())
            assert table.rows[name][MEAN, metric].value == pytest.approx(whole)
    assert table.rows["part"] == {("arith", "avg@4"): None, ("arith", "pass@4"): None}
    (missing,) = [note for note in table.notes if "part" in note and "headline" in note]
    assert "3 of 20 samples are missing" in missing
    assert "* arith: 5 of the suite's 240 questions" in table.notes, "said once for all"


def test_every_form_shows_the_same_cells(runs):
    table = score_table(systems([str(runs / "a"), str(runs / "part")]))
    rows = re.findall(r"^\| (.*) \|$", markdown(table), re.M)
    assert rows[0].split(" | ") == ["system", r"arith\*", r"tinyworld\*", "mean"]
    assert rows[3].split(" | ") == [
        "part",
        f"{UNKNOWN} / {UNKNOWN}",
        *[f"{NOT_RUN} / {NOT_RUN}"] * 2,
    ]
    number = table.rows["a"]["arith", "avg@4"]
    above, below = sides(number)
    shown = f"{number.value:.1f} " + (f"± {above}" if above == below else f"+{above} −{below}")
    assert rows[2].split(" | ")[1].startswith(f"{shown} / ")
    text = latex(table)
    assert (
        f"\na & {number.value:.1f}" in text and "\npart & -- & -- & -- & -- & -- & -- \\\\" in text
    )
    assert text.count("&") == 3 + 3 * 6, "a head of three pairs, and three rows of seven"
    printed = bench("report", runs / "a", runs / "part")
    assert printed.exit_code == 0 and shown in printed.stdout and UNKNOWN in printed.stdout
    assert "3 of 20 samples are missing" in printed.stderr


def test_prices_add_the_cost_to_every_form(runs, tmp_path):
    prices = tmp_path / "prices.yaml"
    model = next(read_episodes(runs / "a" / "arith" / "episodes")).turns[0].model
    prices.write_text(f"{json.dumps(model)}: {{prompt: 1000, response: 2000}}")
    folders = [runs / "a" / one / "episodes" for one in ("arith", "tinyworld")]
    turns = sum(len(episode.turns) for one in folders for episode in read_episodes(one))
    usd = turns * (50 * 1000 + 7 * 2000) / 1e6
    done = bench("report", runs / "a", runs / "b", "--prices", prices,
                 "--markdown", tmp_path / "t.md", "--latex", tmp_path / "t.tex")  # fmt: skip
    assert done.exit_code == 0, done.output
    for text in (done.stderr, (tmp_path / "t.md").read_text(), (tmp_path / "t.tex").read_text()):
        assert f"a {usd:.4g}, b " in text
    assert "USD" in bench("report", runs / "a" / "arith", "--prices", prices).stdout
    prices.write_text("other: {prompt: 1, response: 1}")
    unpriced = bench("report", runs / "a", runs / "b", "--prices", prices)
    assert f"a unknown (no price of {model!r})" in unpriced.stderr
    assert "USD" not in bench("report", runs / "a", runs / "b").output
    prices.write_text("[]")
    assert bench("report", runs / "a", "--prices", prices).exit_code == 2


@given(st.lists(st.tuples(*[st.floats(0, 100)] * 3).map(sorted), min_size=1, max_size=6))
def test_the_mean_and_its_interval(bounds):
    numbers = [Number(value, low, high) for low, value, high in bounds]
    whole = mean(numbers)
    n = len(numbers)
    assert whole.value == pytest.approx(average(one.value for one in numbers))
    below = math.sqrt(sum((one.value - one.low) ** 2 for one in numbers)) / n
    assert whole.low == pytest.approx(max(whole.value - below, 0), abs=1e-9)
    assert 0 <= whole.low <= whole.value + 1e-9 and whole.value - 1e-9 <= whole.high <= 100
    if n == 1:
        one = numbers[0]
        assert (whole.low, whole.high) == pytest.approx((one.low, one.high), abs=1e-9)
    assert mean([*numbers, None]) is None


def test_equal_normal_intervals_give_the_normal_interval_of_a_mean():
    whole = mean([Number(50, 50 - 1.96 * 4, 50 + 1.96 * 4)] * 4)  # SE 4 each, so 2 for the mean
    assert (whole.low, whole.high) == pytest.approx((50 - 1.96 * 2, 50 + 1.96 * 2))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (Number(50, 41.1, 58.9), ("8.9", "8.9")),
        (Number(50, 41.1, 58.5), ("8.9", "8.9")),  # the longer side
        (Number(100, 88.4, 100), ("0.0", "11.6")),
    ],
)
def test_one_width_only_where_the_sides_are_alike(number, expected):
    assert sides(number) == expected


def changed(runs, tmp_path, **settings):
    """A copy of a run with other settings."""
    shutil.copytree(runs / "a" / "arith", tmp_path / "other")
    path = tmp_path / "other" / "run.json"
    record = json.loads(path.read_text())
    record["settings"] |= settings
    path.write_text(json.dumps(record))
    return str(tmp_path / "other")


def test_runs_that_no_table_can_hold_are_refused(runs, tmp_path):
    a = str(runs / "a")
    with pytest.raises(UserError, match="two runs of arith in the system 'x'; give each a name"):
        systems([f"x={a}", f"x={runs / 'part'}"])
    with pytest.raises(UserError, match=r"has k = 4, .*other has k = 5"):
        systems([a, changed(runs, tmp_path, k=5)])
    shutil.rmtree(tmp_path / "other")
    suite = read_run(runs / "part").settings.suite | {"sha256": "0" * 64}
    with pytest.raises(UserError, match="played arith with different contents"):
        systems([a, changed(runs, tmp_path, suite=suite)])
    for folder in (tmp_path / "nowhere", f"x={tmp_path / 'nowhere'}"):
        with pytest.raises(BadFile, match="no such file"):
            systems([str(folder)])


def test_names(runs, tmp_path):
    odd = tmp_path / "k=4"
    shutil.copytree(runs / "part", odd)
    shutil.copytree(runs / "part", tmp_path / "sub" / "part")
    assert [one.name for one in systems([str(odd), f"x={odd}"])] == ["k=4", "x"]
    paths = [str(runs / "part"), str(tmp_path / "sub" / "part")]
    assert [one.name for one in systems(paths)] == paths, "alike names are told apart"
    both = systems([f"x={runs / 'a' / 'arith'}", f"x={runs / 'a' / 'tinyworld'}"])
    assert [list(one.runs) for one in both] == [["arith", "tinyworld"]]


def test_the_folder_holds_tables_numbers_plots_and_every_conversation(runs, tmp_path):
    out = tmp_path / "report"
    done = bench("report", f"{NAME}={runs / 'a'}", runs / "b", "--out", out,
                 "--markdown", tmp_path / "t.md", "--latex", tmp_path / "t.tex")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (out / "table.md").read_bytes() == (tmp_path / "t.md").read_bytes()
    assert (out / "table.tex").read_bytes() == (tmp_path / "t.tex").read_bytes()
    found = json.loads((out / "diagnostics.json").read_text())
    assert found["arith"]["b"]["episodes"] == 20
    assert found["tinyworld"]["b"]["searches"]["total"] == sum(
        isinstance(event, ToolResult) and event.tool == "search"
        for episode in read_episodes(runs / "b" / "tinyworld" / "episodes")
        for event in episode.events
    )
    plots = {path.stem: path.read_bytes() for path in (out / "plots").iterdir()}
    assert set(plots) == {"pass_curve", "accuracy_by_turn", "verifier", "searches", "tokens"}
    assert all(png.startswith(b"\x89PNG") for png in plots.values())
    html = (out / "index.html").read_text(encoding="utf-8")
    assert html.count("<img ") == 5 and "&lt;img src&gt;&amp;" in html
    assert "All 80 conversations." in html
    assert f"{by_hand(runs / 'b' / 'arith')[0]:.1f} %" in html
    rows, conversations = read(out)
    assert len(rows) == 40 and {row["suite"] for row in rows} == {"arith", "tinyworld"}
    texts = [event["text"] for pair in conversations for one in pair for event in one["events"]
             if event["kind"] == "turn"]  # fmt: skip
    stored = [
        turn.text
        for name in ("a", "b")
        for suite in ("arith", "tinyworld")
        for episode in read_episodes(runs / name / suite / "episodes")
        for turn in episode.turns
    ]
    assert sorted(texts) == sorted(stored)


def test_a_report_is_replaced_by_one_of_the_same_runs_only(runs, tmp_path):
    out, mine = tmp_path / "out", ("report", f"mine={runs / 'a'}", runs / "b", "--out")
    (tmp_path / "empty").mkdir()
    for folder in (out, tmp_path / "empty"):
        assert bench(*mine, folder).exit_code == 0
    (out / "plots" / "of_before.png").touch()
    (out / "index.html").unlink()
    shutil.copytree(runs / "b", tmp_path / "copied")
    same = bench("report", f"renamed={tmp_path / 'copied'}", runs / "a", "--out", out)
    assert same.exit_code == 0 and "renamed" in (out / "index.html").read_text("utf-8")
    assert not (out / "plots" / "of_before.png").exists()
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for others in ([runs / "b"], [runs / "a", runs / "b" / "arith"]):
        refused = bench("report", *others, "--out", out)
        assert (
            refused.exit_code == 2
            and len(refused.stderr.splitlines())
            == len(bench("report", *others).stderr.splitlines()) + 1
        )
        assert f"--out {out}: holds the report of other runs" in refused.stderr
        assert str(tmp_path / "copied") in refused.stderr and "another folder" in refused.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == kept
    (out / "report.json").write_text("[]")
    assert "no record of a report" in bench(*mine, out).stderr


def test_a_run_without_a_number_is_still_read(runs, tmp_path):
    folder = tmp_path / "failed"
    shutil.copytree(runs / "part", folder)
    lost = [
        Episode(env={}, prompts="", task="x", sample=n, status="failed", reason="engine lost")
        for n in range(2)
    ]
    shutil.rmtree(folder / "episodes")
    write_episodes(folder / "episodes", lost)
    done = bench("report", folder, runs / "b" / "arith", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    rows, _ = read(tmp_path / "out")
    assert [row["episodes"][0]["outcome"] for row in rows if row["episodes"][0]] == ["failed"] * 2
    assert "failed" not in json.loads((tmp_path / "out" / "diagnostics.json").read_text())["arith"]
    assert "no number" in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_a_folder_with_other_things_in_it_is_left_alone(runs, tmp_path):
    refused = bench("report", runs / "part", "--out", runs / "part")
    assert refused.exit_code == 2 and "is the folder of a run" in refused.stderr
    (tmp_path / "thesis.tex").write_text("x")
    refused = bench("report", runs / "part", "--out", tmp_path)
    assert refused.exit_code == 2 and "holds other files and no report.json" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    refused = bench("report", runs / "part", "--latex", tmp_path / "no" / "t.tex")
    assert refused.exit_code == 2 and "its folder does not exist" in refused.stderr


def test_without_matplotlib_there_is_all_but_the_plots(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench("report", runs / "a", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "note: plots are left out, they need matplotlib: pip" in done.stderr
    assert list((tmp_path / "out" / "plots").iterdir()) == []
    assert "mas-gym[plots]" in done.stderr
    assert "mas-gym[plots]" in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_the_command_loads_no_torch_and_draws_nothing_unasked():
    code = (
        "import sys, benchmarks.cli, benchmarks.report.folder;"
        "heavy = {'torch', 'matplotlib', 'transformers'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_pages_blocks_run(tmp_path):
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    section = re.search(r"^## Reports$.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[0]
    run_blocks(section, tmp_path)
    assert (tmp_path / "report" / "index.html").exists() and (tmp_path / "table.tex").exists()


def test_the_speed_script_makes_runs_that_the_report_reads_whole(tmp_path):
    speed_report.make_run(tmp_path / "run", questions=5, k=2, characters=400)
    episodes = list(read_episodes(tmp_path / "run" / "episodes"))
    assert all(len(turn.text) == 400 for episode in episodes for turn in episode.turns)
    done = bench("report", tmp_path / "run", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    right = sum(episode.grade.correct for episode in episodes)
    assert f"{10 * right:.1f} %" in done.stdout and 0 < right < 10
    found = json.loads((tmp_path / "out" / "diagnostics.json").read_text())["made up"]["run"]
    assert found["rounds"][1]["episodes"] == 10, "both drafts were graded"
    assert found["verdicts"]["undecided"] == 0
