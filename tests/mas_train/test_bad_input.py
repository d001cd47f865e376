"""What a run is given, or meets, that nothing can be learned from."""

from __future__ import annotations

import dataclasses
import errno
import shutil

import msgspec
import numpy as np
import pytest
import torch

from mas_envs import Grade
from mas_envs.errors import BadFile, UserError
from mas_train.config import Misconfigured
from mas_train.demo.tiny_model import WEIGHTS
from mas_train.engines.load import load_engine
from mas_train.learner import learner as learners
from mas_train.learner.learner import NonFiniteGradient
from mas_train.loop import train
from mas_train.model_path import check_models, model_path
from mas_train.out_of_memory import memory_errors, out_of_memory
from mas_train.run.metrics_log import read_metrics
from mas_train.run.monitor import MAX_REWARD, check_rewards
from mas_train.run.step_metrics import step_metrics

# ---- memory ------------------------------------------------------------------------------------


def too_large():
    torch.empty(2**55)


def raised(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        too_large,
        lambda: np.ones(2**55),
        raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")),
        raised(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")),
        raised(OSError(errno.ENOMEM, "Cannot allocate memory")),
        raised(MemoryError()),
    ],
    ids=["torch", "numpy", "cuda", "cublas", "system", "python"],
)
def test_out_of_memory_says_which_sizes_to_lower(fail):
    with pytest.raises(UserError) as caught, memory_errors("a", "learning"):
        fail()
    message = str(caught.value)
    assert message.startswith("model 'a': out of memory while learning (")
    for size in ("train.token_budget", "rollout.max_tokens", "models.a.engine.memory", "max_rows",
                 "models.a.gradient_checkpointing"):  # fmt: skip
        assert size in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("shape"), OSError(errno.ENOSPC, "full"), KeyError()]
)
def test_other_errors_stay_themselves(error):
    assert not out_of_memory(error)
    with pytest.raises(type(error)), memory_errors("a", "learning"):
        raise error


def test_a_run_out_of_memory_says_how_to_go_on(config, monkeypatch):
    original, calls = learners.pack_loss, []

    def fail(*arguments):
        calls.append(1)
        return original(*arguments) if len(calls) < 9 else too_large()

    monkeypatch.setattr(learners, "pack_loss", fail)
    run = config("train.steps=9", shared=True)
    with pytest.raises(UserError, match=r"lower train\.token_budget .* go on with: mas-train res"):
        train(run)


# ---- numbers -----------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_names_the_model(config):
    with pytest.raises(NonFiniteGradient, match=r"model 'team': the gradient .*\.optimizer\.lr"):
        train(config("loss.entropy=1e300", "train.steps=4", shared=True))


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e308, 2 * MAX_REWARD])
def test_a_reward_too_large_to_learn_from_is_named(reward):
    rewards, agents = np.array([0.0, reward]), np.array(["solver_0", "judge_0"])
    with pytest.raises(UserError, match=r"a turn of judge_0 earned .*agents\.\*\.invalid_penalty"):
        check_rewards(rewards, agents, np.array([True, True]))
    check_rewards(rewards, agents, np.array([True, False]))  # of a failed episode: unknown
    check_rewards(np.array([MAX_REWARD, -MAX_REWARD]), agents, np.array([True, True]))


def test_an_undecided_episode_is_neither_right_nor_wrong(config, random_rows):
    from mas_envs import read_episodes

    folder = train(config("train.steps=1", "rollout.prompts_per_step=1", shared=True))
    (one, two, three, four) = read_episodes(folder / "episodes")
    grades = [Grade(correct=True), Grade(correct=False), Grade(correct=None), Grade(correct=True)]
    episodes = [
        msgspec.structs.replace(episode, grade=grade)
        for episode, grade in zip((one, two, three, four), grades, strict=True)
    ]
    rows = dataclasses.replace(random_rows(4), known=np.zeros(4, np.bool_))
    seconds = {"rollout": 1.0}
    found = step_metrics(0, episodes, rows, np.zeros(4), {}, seconds)
    assert found["accuracy"] == pytest.approx(2 / 3) and found["undecided"] == 1
    found = step_metrics(0, episodes[2:3], rows, np.zeros(4), {}, seconds)
    assert found["accuracy"] is None and found["undecided"] == 1


@pytest.mark.parametrize("content", [b"3\n4\n", b"{}\n{}\n", b"\xff\n{}\n", b'{"step": "x"}\n'])
def test_metrics_that_are_none_name_the_line(tmp_path, content):
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(BadFile, match=r"metrics\.jsonl:1: not .*; remove the line"):
        read_metrics(tmp_path / "metrics.jsonl")


# ---- models ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nowhere/m", "there is no folder '/nowhere/m'"),
        ("./m", r"there is no folder './m'"),
        ("a/b/c", "there is no folder 'a/b/c'"),
        ("~/nowhere/m", r"there is no folder '/.*/nowhere/m'"),
    ],
)
def test_a_path_that_can_be_no_id_must_be_a_folder(config, path, said):
    with pytest.raises(Misconfigured, match=rf"models\.solver\.path: {said}"):
        check_models(config(f"models.solver.path={path}"))


def test_a_folder_without_a_model_and_the_revision_of_a_folder(config, tmp_path):
    with pytest.raises(Misconfigured, match=r"models\.solver\.path: .* has no config\.json"):
        check_models(config(f"models.solver.path={tmp_path}"))
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="is a file; give the folder"):
        check_models(config(f"models.solver.path={tmp_path / 'file'}"))
    with pytest.raises(Misconfigured, match=r"models\.solver\.revision: 'v2' is not looked at"):
        check_models(config("models.solver.revision=v2"))
    check_models(config("models.solver={path: Qwen/Qwen3-4B, revision: v2}"))


def test_home_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_path("~/m") == str(tmp_path / "m")


def test_a_name_that_may_be_a_folder_or_an_id_is_read_both_ways(config, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    settings = config().models["solver"]
    with pytest.raises(UserError, match=r"'mymodel' was taken for a Hugging Face id, .*write \./"):
        load_engine("solver", settings, "mymodel")


def test_a_template_argument_that_the_template_does_not_know(config):
    settings = config("models.solver.template={enable_thinkin: true}").models["solver"]
    with pytest.raises(UserError, match=r"models\.solver: template: unknown .* 'enable_thinkin'"):
        load_engine("solver", settings, settings.path)


def test_weights_of_another_shape_and_a_vocabulary_too_large(config, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(WEIGHTS, folder)
    text = (folder / "config.json").read_text()
    settings = config().models["solver"]
    fake = config("models.solver.engine={name: fake}").models["solver"]
    (folder / "config.json").write_text(text.replace('"vocab_size": ', '"vocab_size": 1'))
    with pytest.raises(UserError, match=r"models\.solver: .*do not have the shapes"):
        load_engine("solver", settings, str(folder))
    smaller = '"vocab_size": 9, "was": '
    (folder / "config.json").write_text(text.replace('"vocab_size": ', smaller))
    with pytest.raises(
        UserError, match=r"models\.solver: the tokenizer has .*the model has only 9"
    ):
        load_engine("solver", fake, str(folder))
