"""Whole runs in which something is unusual: failed episodes, absent agents, other models."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import mas_envs
from mas_envs.errors import MachineryError, TooManyFailures
from mas_train.advantages import advantages
from mas_train.demo.tiny_model import WEIGHTS
from mas_train.environment import make_env, run_tasks
from mas_train.experience.credit import Credit
from mas_train.experience.gather import play, prompts_of
from mas_train.experience.rows import episode_rows
from mas_train.loop import train
from mas_train.run import checkpoint
from mas_train.run.metrics_log import read_metrics
from mas_train.team import Team
from tests.mas_train.run_cases import stored, timeless, weights

ODD = "env.id=tests.mas_train.odd_envs:"
EXAMPLES = Path(__file__).parents[2] / "examples"


def last(folder):
    return read_metrics(folder / "metrics.jsonl")[-1]


def unchanged(folder, model):
    """Whether the model's weights are those that the run started from."""
    before = load_file(WEIGHTS / "model.safetensors")
    return all(np.array_equal(weights(folder)[f"{model}/{name}"], before[name]) for name in before)


# ---- failed episodes ---------------------------------------------------------------------------


def failing(share):
    return [f"{ODD}FailingGrader", f"env.args={{max_rounds: 2, share: {share}}}"]


def test_a_few_failed_episodes_are_counted_and_left_out(config):
    folder = train(config(*failing(0.03), "train.steps=6"))
    rows = read_metrics(folder / "metrics.jsonl")
    assert len(rows) == 6 and 0 < sum(row["failed"] for row in rows) <= 10
    episodes = list(mas_envs.read_episodes(folder / "episodes"))
    for row in rows:
        played = [e for e in episodes if e.step == row["step"] and e.status == "done"]
        assert row["failed"] == 16 - len(played)
        assert row["reward"] == pytest.approx(np.mean([episode.reward for episode in played]))
        assert row["agents"]["verifier"]["rows"] == sum(len(e.turns) > 1 for e in played)
    assert {reason for row in rows for reason in row["failures"]} == {
        "tool grade: ConnectionError: the grader is down"
    }


def test_many_failed_episodes_stop_the_run_though_each_step_has_few(config):
    """A fifth of 16 is 3: no single step shows it, 200 episodes do."""
    stopped = config(*failing(0.2), "train.steps=20", "train.checkpoint_every=50")
    with pytest.raises(
        TooManyFailures, match=r"11 of the last \d+ .* the grader is down; \d"
    ) as end:
        train(stopped)
    done = checkpoint.step_of(checkpoint.newest(stopped.folder / "checkpoints"))
    assert 0 < done < 20 and f"{done} of 20 steps are saved; go on with" in str(end.value)
    train(config(f"train.steps={done + 1}"), resume=True)
    assert len(read_metrics(stopped.folder / "metrics.jsonl")) == done + 1


def test_a_step_in_which_all_episodes_fail_stops_the_run(config):
    few = config(*failing(1.0), "train.steps=1", "rollout.prompts_per_step=2")
    said = "all 8 episodes of a step failed: .*the grader is down; 0 of 1 steps are saved"
    with pytest.raises(TooManyFailures, match=said):
        train(few)


def test_when_every_deadline_passes(config):
    late = config("rollout.deadline_s=0.0001")
    with pytest.raises(TooManyFailures, match=r"deadline of 0.0001 s; 0 of 2 steps are saved"):
        train(late)


def test_a_bug_in_a_workflow_keeps_its_traceback_and_the_finished_steps(config):
    buggy = config(f"{ODD}Raising", "env.args={after: 20}", "train.checkpoint_every=50")
    with pytest.raises(KeyError, match="a bug of mine"):
        train(buggy)
    assert checkpoint.newest(buggy.folder / "checkpoints").name == "step-000001"


def test_a_failed_episode_is_in_no_statistic_and_no_gradient(config):
    """The same batch with and without failed episodes: equal bits in advantages and weights."""
    settings = config("train.updates_per_step=2")
    env, (tasks, _) = make_env(settings), run_tasks(settings)
    team = Team(settings)
    chosen = prompts_of(0, 4, tasks, 0)
    episodes = asyncio.run(play(settings, env, team, chosen, 0, 4, settings.sampling()))
    lost = {1, 6, 8, 9, 10}  # of the third group one member remains: its advantage is 0
    failed = [
        msgspec.structs.replace(e, status="failed", reason="machinery", reward=123.0)
        if i in lost
        else e
        for i, e in enumerate(episodes)
    ]
    results = []
    for batch in (failed, [e for i, e in enumerate(episodes) if i not in lost]):
        fresh = Team(settings)
        rows = episode_rows(batch)
        credit = advantages(
            rows.reward, rows.prompt, rows.agent, rows.trajectory, rows.turn, known=rows.known
        )
        metrics = fresh.update(Credit(rows, credit, {}))
        state = {name: model.learner.model.state_dict() for name, model in fresh.trained.items()}
        results.append((credit[rows.known], metrics, state, rows))
    (credit, metrics, state, rows), (other_credit, other_metrics, other_state, _) = results
    assert np.array_equal(credit, other_credit) and np.abs(credit).max() > 0
    third = rows.prompt[rows.known] == 2
    assert third.any() and not credit[third].any()
    assert metrics == other_metrics
    for name, model in state.items():
        for tensor, value in model.items():
            assert torch.equal(value, other_state[name][tensor]), (name, tensor)


# ---- agents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_an_agent_that_never_acts(config, shared):
    folder = train(config(f"{ODD}SolverOnly", "env.args={}", shared=shared))
    row = last(folder)
    assert set(row["agents"]) == {"solver"} and row["agents"]["solver"]["grad_norm"] > 0
    if not shared:
        assert row["models"]["verifier"]["rows"] == 0
        assert unchanged(folder, "verifier") and not unchanged(folder, "solver")


def test_two_instances_of_a_role_asked_in_parallel(config, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    roles = "agents={solver: {model: solver}, judge: {model: verifier}}"
    folder = train(config("env={id: 'my_workflow:PickEnv'}", roles))
    row = last(folder)
    assert row["agents"]["solver"]["rows"] == 2 * row["agents"]["judge"]["rows"] == 32
    for episode in mas_envs.read_episodes(folder / "episodes"):
        first, second, judge = episode.turns
        assert (first.agent, second.agent, judge.agent) == ("solver_0", "solver_1", "judge_0")
        assert first.batch == second.batch != judge.batch
        assert first.seed != second.seed
    sys.modules.pop("my_workflow", None)


def test_a_loss_weight_of_0_is_no_gradient_at_all(config):
    """The shared model moves as if the verifier's advantages were 0, bit for bit."""
    settings = config("agents.verifier.loss_weight=0", shared=True)
    env, (tasks, _) = make_env(settings), run_tasks(settings)
    team = Team(settings)
    chosen = prompts_of(0, 4, tasks, 0)
    rows = episode_rows(asyncio.run(play(settings, env, team, chosen, 0, 4, settings.sampling())))
    credit = advantages(rows.reward, rows.prompt, rows.agent, rows.trajectory)
    silent = np.where(rows.agent == "verifier", 0.0, credit)
    assert np.abs(credit - silent).max() > 0
    other = Team(config(shared=True))
    metrics = (
        team.update(Credit(rows, credit, {}))["team"],
        other.update(Credit(rows, silent, {}))["team"],
    )
    assert metrics[0] == metrics[1] and metrics[0]["grad_norm/verifier"] == 0
    for name, value in team.trained["team"].learner.model.state_dict().items():
        assert torch.equal(value, other.trained["team"].learner.model.state_dict()[name]), name


# ---- models ------------------------------------------------------------------------------------


@pytest.fixture
def llama(tmp_path):
    """A folder with a random Llama of another size, with the demo's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            eos_token_id=tokenizer.eos_token_id,
            tie_word_embeddings=False,
        )
    )
    folder = tmp_path / "llama"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_models_of_two_architectures_in_one_team(config, llama):
    folder = train(config(f"models.verifier.path={llama}"))
    row = last(folder)
    assert row["models"]["verifier"]["mismatch"] < 1e-4
    assert row["agents"]["verifier"]["invalid_share"] > 0.5  # it is random
    found = weights(folder)
    assert "verifier/lm_head.weight" in found and "solver/lm_head.weight" not in found
    longer = train(config(f"models.verifier.path={llama}", "train.steps=3"), resume=True)
    assert not np.array_equal(
        weights(longer)["verifier/lm_head.weight"], found["verifier/lm_head.weight"]
    )


def test_prompts_that_overflow_the_context_are_outcomes(config):
    folder = train(config("models.solver.engine.max_model_len=20"))
    turns = [t for e in mas_envs.read_episodes(folder / "episodes") for t in e.turns]
    overflowed = [turn for turn in turns if turn.finish_reason == "overflow"]
    assert overflowed and all(len(turn.ids) == 0 and turn.reward < 0 for turn in overflowed)
    row = last(folder)
    assert row["failed"] == 0
    assert row["models"]["solver"]["rows"] < row["agents"]["solver"]["rows"]  # no tokens, no row
    assert np.isfinite(row["models"]["solver"]["grad_norm"])


def test_a_bfloat16_run_moves_at_a_small_learning_rate_and_resumes_bit_for_bit(config):
    few = "rollout.prompts_per_step=2"
    half = [few] + [f"models.{name}.dtype=bfloat16" for name in ("solver", "verifier")]
    slow = [f"models.{name}.optimizer.lr=1e-6" for name in ("solver", "verifier")]
    whole = train(config("run.name=whole", *half, *slow))
    train(config("run.name=parts", "train.steps=1", *half, *slow))
    parts = train(config("run.name=parts", *half, *slow), resume=True)
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.bfloat16)
    initial = [parameter.float() for parameter in model.parameters()]
    for name in ("solver", "verifier"):
        one, other = (
            torch.load(checkpoint.newest(run / "checkpoints") / f"{name}.optimizer.pt")["masters"]
            for run in (whole, parts)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        moved = [(after - before).abs() for after, before in zip(one, initial, strict=True)]
        share = sum((part > 0).sum().item() for part in moved) / sum(part.numel() for part in moved)
        assert share > 0.5 and 1e-7 < max(part.max().item() for part in moved) < 1e-5
    assert stored(whole) == stored(parts)


def test_the_schedule_goes_on_where_it_was(config):
    cosine = [
        f"models.{name}.optimizer={{lr: 1e-4, schedule: cosine, warmup_steps: 3}}"
        for name in ("solver", "verifier")
    ]
    settings = [*cosine, "train.steps=4", "train.updates_per_step=2"]
    whole = train(config("run.name=whole", *settings))

    class Enough(Exception):
        pass

    def enough(metrics):
        if metrics["step"] == 1:
            raise Enough

    with pytest.raises(Enough):
        train(config("run.name=parts", *settings), watch=enough)
    parts = train(config("run.name=parts", *settings), resume=True)
    rows = [timeless(read_metrics(run / "metrics.jsonl")) for run in (whole, parts)]
    rates = [row["models"]["solver"]["lr"] for row in rows[0]]
    assert rates[0] < rates[1] > rates[2] > rates[3] == 0
    assert rows[0] == rows[1]
    assert all(np.array_equal(a, weights(parts)[n]) for n, a in weights(whole).items())


def test_weights_that_are_not_finite_are_not_used(config):
    """NaN compares to nothing: a probe that asks for "too large" would let it pass."""
    settings = config()
    env, (tasks, _) = make_env(settings), run_tasks(settings)
    team = Team(settings)
    team.sync(0)
    chosen = prompts_of(0, 1, tasks, 0)
    rows = episode_rows(asyncio.run(play(settings, env, team, chosen, 0, 2, settings.sampling())))
    team.sync(1, rows)
    with torch.no_grad():
        next(team.trained["solver"].learner.model.parameters()).fill_(float("nan"))
    with pytest.raises(MachineryError, match=r"not finite .* version 2; lower models.solver.optim"):
        team.sync(2, rows)


def test_extreme_settings_train(config):
    """Micro-batches smaller than a row, more updates than usual, hardly a gradient left."""
    extreme = ["train.token_budget=1", "train.max_grad_norm=1e-12", "loss.aggregation=constant"]
    row = last(train(config(*extreme, "train.steps=1", "train.updates_per_step=5")))
    assert row["models"]["solver"]["grad_norm"] > 0 and row["models"]["solver"]["skipped"] == 0
