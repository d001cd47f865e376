"""The plots of a run: what is drawn, from which values, and odd inputs."""

import math
import struct
import subprocess
import sys

import pytest

from mas_envs.errors import UserError
from mas_train.run import plots
from mas_train.run.plots import line, needs_log_axis, plot_run, running_mean


def metrics(steps: int) -> list[dict]:
    return [
        {
            "step": step,
            "reward": 0.3 + 0.01 * step,
            "accuracy": None if step == 2 else 0.4,
            "agents": {
                "solver": {"grad_norm": 0.5, "inflation": 1.0, "own_reward": 0.1},
                "verifier": {
                    "grad_norm": math.nan if step == 1 else 2.0,
                    "inflation": 2.0**step,
                    "own_reward": -0.1,
                },
            },
        }
        for step in range(steps)
    ]


def size(path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", header[16:])


@pytest.fixture
def drawn(monkeypatch):
    """The axes of each plot, as they were when the file was written."""
    from matplotlib.figure import Figure

    seen = {}
    save = Figure.savefig

    def keep(figure, path, **options):
        seen[path.name] = figure.axes[0]
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return seen


def test_four_labelled_plots(tmp_path, drawn):
    paths = plot_run(metrics(30), tmp_path / "new" / "plots")
    assert [path.stem for path in paths] == ["reward", "own_reward", "gradient_norm", "inflation"]
    assert [size(path) for path in paths] == [(900, 450)] * 4
    labels = {
        name: [text.get_text() for text in axes.get_legend().get_texts()]
        for name, axes in drawn.items()
    }
    assert labels == {
        "reward.png": ["reward", "accuracy (share right)"],
        "own_reward.png": ["solver", "verifier"],
        "gradient_norm.png": ["solver", "verifier"],
        "inflation.png": ["solver", "verifier"],
    }
    for axes in drawn.values():
        assert axes.get_xlabel() == "training step"
        assert axes.get_ylabel() and axes.get_title(loc="left")
    assert drawn["inflation.png"].get_yscale() == "log"
    assert drawn["gradient_norm.png"].get_yscale() == "linear"
    raw, smooth = drawn["reward.png"].lines[:2]
    assert list(raw.get_ydata()) == pytest.approx([0.3 + 0.01 * step for step in range(30)])
    assert raw.get_alpha() < 0.5 and list(smooth.get_ydata()) == running_mean(raw.get_ydata())


def test_inflation_is_linear_within_a_tenfold_range(tmp_path, drawn):
    plot_run(metrics(4), tmp_path)  # 1 … 8
    assert drawn["inflation.png"].get_yscale() == "linear"
    assert needs_log_axis([0.0, 1.0, 10.1]) and not needs_log_axis([0.0, 1.0, 10.0])
    assert not needs_log_axis([]) and not needs_log_axis([0.0, -1.0])


def test_missing_values_are_left_out():
    rows = [{"step": 3, "x": 1}, {"step": 4, "x": None}, {"step": 5}, {"step": 6, "x": math.nan},
            {"step": 7, "x": math.inf}, {"step": 8, "x": 2.0}]  # fmt: skip
    assert line(rows, "x", lambda row: row.get("x")) == plots.Line("x", [3.0, 8.0], [1.0, 2.0])


@pytest.mark.parametrize(
    "rows",
    [
        metrics(1),
        metrics(2),
        [{"step": 0, "reward": None, "agents": {}}],
        [{"step": 0, "reward": math.nan, "agents": {"solver": {"inflation": None}}}],
        [{"reward": 1.0}, {"reward": 0.5, "agents": None}],
        [{"step": s, "reward": 1.0, "agents": {"a": {"inflation": 0.0}}} for s in range(5)],
    ],
    ids=["one step", "two steps", "nothing", "all NaN", "no step key", "zero inflation"],
)
def test_odd_runs_still_give_four_plots(tmp_path, rows):
    assert [size(path) for path in plot_run(rows, tmp_path)] == [(900, 450)] * 4


def test_no_steps_is_said_clearly(tmp_path):
    with pytest.raises(UserError, match="no training steps to plot"):
        plot_run([], tmp_path / "plots")
    assert not (tmp_path / "plots").exists()


def test_running_mean_against_hand_computed_values():
    assert running_mean([1.0, 2.0, 6.0]) == [1.5, 3.0, 4.0]
    assert running_mean([5.0]) == [5.0]
    long = running_mean([0.0] * 30 + [1.0] * 30)  # a window of 11
    assert long[24] == 0.0 and long[25] == pytest.approx(1 / 11) and long[35] == 1.0


def test_the_same_run_gives_the_same_bytes(tmp_path):
    first, second = plot_run(metrics(5), tmp_path / "a"), plot_run(metrics(5), tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_matplotlib_is_loaded_only_to_draw():
    code = "import sys, mas_train.run.plots; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def score(value: float) -> dict:
    return {"value": value, "low": value - 5, "high": value + 2}


def test_what_a_run_has_more_of_is_drawn_too(tmp_path, drawn):
    rows = metrics(6)
    for row in rows:
        row["models"] = {"a": {"entropy": 0.5, "kl_reference": 0.0}, "b": {"entropy": 0.25}}
        row["agents"]["solver"] |= {"response_tokens": 7.0, "invalid_share": 0.0}
        if row["step"] % 5 == 0:
            row["eval"] = {"avg@16": score(20.0 + row["step"]), "pass@16": None, "reward": 0.2}
    rows.append({"step": 6, "eval": {"avg@16": score(30.0), "pass@16": score(50.0)}})
    paths = plot_run(rows, tmp_path)
    more = ["evaluation", "response_tokens", "invalid_share", "entropy", "kl_reference"]
    assert [path.stem for path in paths[4:]] == more
    assert {size(path) for path in paths} == {(900, 450)}
    evaluation = drawn["evaluation.png"]
    average, passed = (container.lines for container in evaluation.containers)
    assert average[0].get_xydata().tolist() == [[0, 20], [5, 25], [6, 30]]
    assert passed[0].get_xydata().tolist() == [[6, 50]]
    (bars,) = average[2]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [
        [15, 22], [20, 27], [25, 32]
    ]  # fmt: skip
    names = [text.get_text() for text in drawn["kl_reference.png"].get_legend().get_texts()]
    assert names == ["a"] and evaluation.get_xlabel() == "training steps done"
