"""`mas-bench export`: the numbers are the run's, the keys those of lm-evaluation-harness."""

import json
from statistics import mean, stdev

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from mas_envs import read_episodes


def bench(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "run"
    done = bench("run", "arith", "--policy", "scripted:adder", "-k", 4, "--limit", 9, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def exported(run, out):
    done = bench("export", run, "--out", out)
    assert done.exit_code == 0, done.output
    [results] = out.glob("scripted__adder/results_*.json")
    [samples] = out.glob("scripted__adder/samples_arith_*.jsonl")
    assert results.stem.removeprefix("results_") == samples.stem.removeprefix("samples_arith_")
    return json.loads(results.read_text()), [
        json.loads(x) for x in samples.read_text().splitlines()
    ]


def test_results_are_the_summary_in_fractions(run, tmp_path):
    results, _ = exported(run, tmp_path / "lm")
    scores = results["results"]["arith"]
    summary = json.loads((run / "summary.json").read_text())
    for metric in ("avg@4", "pass@4"):
        assert 100 * scores[f"{metric},none"] == pytest.approx(summary[metric]["value"])
    by_question = {}
    for episode in read_episodes(run / "episodes"):
        by_question.setdefault(episode.task, []).append(float(episode.grade.correct))
    means = list(map(mean, by_question.values()))
    assert scores["avg@4_stderr,none"] == pytest.approx(stdev(means) / 9**0.5)
    assert results["n-samples"]["arith"] == {"original": 240, "effective": 9}
    assert results["configs"]["arith"]["repeats"] == 4 and results["config"]["limit"] == 9
    assert results["configs"]["arith"]["generation_kwargs"]["temperature"] == 0.6
    assert results["versions"]["arith"] == summary_suite(run)["sha256"]
    for key in ("group_subtasks", "n-shot", "higher_is_better", "task_hashes"):
        assert "arith" in results[key]
    assert results["mas_gym"]["summary"]["avg@4"] == summary["avg@4"]


def summary_suite(run):
    return json.loads((run / "run.json").read_text())["settings"]["suite"]


def test_a_row_per_question_with_all_its_samples(run, tmp_path):
    _, rows = exported(run, tmp_path / "lm")
    stored = {(e.group, e.sample): e for e in read_episodes(run / "episodes")}
    assert sorted(row["doc_id"] for row in rows) == list(range(9))
    for row in rows:
        [texts], [answers] = row["resps"], row["filtered_resps"]
        episodes = [stored[row["doc_id"], sample] for sample in range(4)]
        for episode, text, answer, correct in zip(
            episodes, texts, answers, row["correct"], strict=True
        ):
            assert text == [turn for turn in episode.turns if turn.role == "solver"][-1].text
            assert answer == episode.grade.answer and correct is episode.grade.correct
        assert row["doc"]["question"] == episodes[0].question and row["target"] == episodes[0].gold
        assert row["avg@4"] == mean(row["correct"]) and row["pass@4"] == float(any(row["correct"]))
        asked = json.loads(row["arguments"]["gen_args_0"]["arg_0"])
        assert asked[-1]["content"] == episodes[0].turns[0].messages[-1].content
        assert {"doc_hash", "prompt_hash", "target_hash", "filter", "metrics"} <= row.keys()


def test_the_same_run_gives_the_same_files(run, tmp_path):
    exported(run, tmp_path / "one")
    exported(run, tmp_path / "two")
    for path in (tmp_path / "one").rglob("*.json*"):
        assert (
            path.read_bytes()
            == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
        )


def test_what_is_not_whole_is_not_exported(run, tmp_path):
    started = tmp_path / "run"
    (started / "episodes").mkdir(parents=True)
    (started / "run.json").write_bytes((run / "run.json").read_bytes())
    refused = bench("export", started, "--out", tmp_path / "lm")
    assert refused.exit_code == 2 and "36 of 36 samples are missing" in refused.stderr
    assert not (tmp_path / "lm").exists()
    bad = bench("export", run, "--out", tmp_path / "lm", "--format", "lm_eval")
    assert bad.exit_code == 2 and "did you mean 'lm-eval'?" in bad.stderr
