"""`make test-gpu` on a CPU: its steps with a tiny model, and that what it looks for would show."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

from mas_envs.errors import MachineryError  # noqa: E402
from tests.gpu import checks, one_gpu, training  # noqa: E402
from tests.gpu.meters import Meter  # noqa: E402
from tests.gpu.random_model import REAL, SMALL, build  # noqa: E402
from tests.gpu.report import GIB, Report  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("model"), SMALL)


def test_the_same_steps_pass_on_a_cpu(tmp_path):
    report = one_gpu.run("cpu", "transformers", tmp_path, sharded=False)
    assert report.problems == []
    found = {line.what: line.found for line in report.lines}
    assert found["packed log-probs in float32, mean difference"]
    assert len(found["verifier: gradient norms"].split()) == training.STEPS
    assert float(found["solver: what that push changed"].split()[0]) > 1
    assert found["failed episodes"] == "0"


@pytest.mark.slow
def test_the_command_on_a_cpu_with_a_rank_of_fsdp():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.gpu.one_gpu", "--cpu"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FSDP with one rank" in done.stdout and "left out" not in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_is_content():
    done = CliRunner().invoke(one_gpu.app, [])
    assert done.exit_code == 0 and done.output.startswith("no GPU is here")
    assert len(done.output.splitlines()) == 1


def test_the_shape_is_that_of_the_table():
    from mas_train.plan.shapes import PUBLISHED, read_shape

    assert read_shape({"model_type": "qwen3", **REAL}) == PUBLISHED["Qwen/Qwen3-0.6B"]


def test_an_engine_that_keeps_its_old_weights_is_found(folder, tmp_path):
    config = training.configured(folder, "transformers", on_gpu=False, token_budget=512)
    team = training.Team(config)
    team.sync(0)
    model = team.trained["solver"]
    rows, _ = checks.made_rows(model.tokenizer, 1, 16)
    training.check_push(fine := Report(""), "solver", model, rows, 0.25)
    assert fine.problems == []
    model.engine.load_weights = lambda weights, version: None
    with pytest.raises(MachineryError, match="the engine's log-probs differ"):
        training.check_push(Report(""), "solver", model, rows, 0.25)


def test_a_gradient_that_is_off_is_found(folder, monkeypatch):
    model = checks.loaded(folder, "cpu", "bfloat16")
    rows, advantages = checks.made_rows(checks.load_pretrained(folder)[1], 4, 16)
    exact = checks.gradients(model, rows, advantages)
    assert checks.distance(exact, exact) == 0
    other = checks.gradients(model, rows, advantages * [1, 1, 1, 0.5])
    assert checks.distance(other, exact) > 0.05


def test_memory_that_is_off_by_more_than_the_tolerance_is_a_problem():
    report = Report("")
    report.memory("close", 10 * GIB, 11.4 * GIB)
    report.memory("not here", 10 * GIB, None)
    assert report.problems == []
    report.memory("above", 10 * GIB, 11.6 * GIB)
    report.memory("below", 10 * GIB, 8.4 * GIB)
    report.limit("not a number", float("nan"), 1)
    with report.trying("broken"):
        raise RuntimeError("one\ntwo")
    names = [problem.split(":")[0] for problem in report.problems]
    assert names == ["above", "below", "not a number", "broken"]
    assert report.problems[-1] == "broken: RuntimeError: one"


class Simulated:
    """A device on which `learned` bytes are allocated at most while learning."""

    total = 100

    def __init__(self):
        self.held, self.cached, self.learned, self.most = 10, 7, 0, 0

    def used(self):
        return self.held + self.cached + self.learned

    def allocated(self):
        return 4

    def peak(self):
        return 4 + self.most

    def rest(self):
        self.cached, self.most = 0, 0

    def wait(self):
        pass


def test_the_memory_of_learning_is_what_was_in_use_and_what_it_allocated():
    gpu = Simulated()
    meter = Meter(gpu)

    def update(more):
        gpu.learned = gpu.most = more
        meter.look()
        gpu.learned, gpu.cached = 0, more + 5  # torch keeps it for later
        return more

    learn = meter.learning("update solver", update)
    both = meter.timed("update", lambda: [learn(20), meter.look(), learn(3)])
    meter.phase = "playing"
    meter.look()
    assert both() == [20, None, 3] and meter.phase == "playing"
    assert meter.peaks == {"playing": 17, "update solver": 30, "learning": 30, "update": 35}
    assert meter.calls == {"update solver": 2, "update": 1}
    assert meter.seconds["update"] >= meter.seconds["update solver"] > 0


def test_the_use_of_the_device_is_looked_at_all_the_time():
    with Meter(Simulated()) as meter:
        while not meter.peaks:
            time.sleep(0.001)
    assert meter.peaks == {"loading": 17}
