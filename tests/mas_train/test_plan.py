"""`mas-train plan`: its arithmetic against real tensors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mas_envs.errors import UserError  # noqa: E402
from mas_train.cli import app  # noqa: E402
from mas_train.config import Config, LoraConfig, ModelConfig, OptimizerConfig, resolve  # noqa: E402
from mas_train.plan import GIB, make_plan  # noqa: E402
from mas_train.plan.memory import (  # noqa: E402
    LOGITS_CHUNK,
    RESERVE,
    activation_bytes,
    activations,
    cache_bytes,
    layer_bytes,
    learner_memory,
)
from mas_train.plan.shapes import PUBLISHED, read_shape, shape_of  # noqa: E402
from mas_train.recipes import recipe, recipes  # noqa: E402
from tests.mas_train.plan_cases import hf_config  # noqa: E402

# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_optimizer_are_exactly_the_tensors(dtype: str) -> None:
    from mas_train.learner.learner import Learner

    config = hf_config("qwen3", tie_word_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    learner = Learner(model, OptimizerConfig())
    for parameter in learner.parameters:
        parameter.grad = torch.ones_like(parameter)
    gradients = sum(p.grad.nbytes for p in learner.parameters)
    learner.weights.take_gradients()
    copies = sum(m.grad.nbytes for m in learner.weights.masters if m.dtype != model.dtype)
    learner.optimizer.step()
    shape = read_shape(config.to_dict())
    memory = learner_memory(shape, ModelConfig(path="x", dtype=dtype), 100, 1)  # type: ignore[arg-type]
    moments = [
        state[key]
        for state in learner.optimizer.state.values()
        for key in ("exp_avg", "exp_avg_sq")
    ]
    assert memory.weights == sum(p.nbytes for p in model.parameters())
    assert memory.gradients == gradients
    assert memory.moments == sum(tensor.nbytes for tensor in moments)
    assert memory.masters == sum(tensor.nbytes for tensor in learner.weights.state())
    assert memory.step_copies == copies


def saved_bytes(model: Any, tokens: int, dtype: Any) -> int:
    """What one forward pass keeps for its backward pass beside the weights: unique storages."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Any] = []  # so that no address is given out twice

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = model.model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    assert hidden.last_hidden_state.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_within_a_tenth_of_the_measured(family: str, dtype: str) -> None:
    config = hf_config(family, hidden_size=96, intermediate_size=320, num_hidden_layers=4)
    config._attn_implementation = "sdpa"
    kind = getattr(torch, dtype)
    model = transformers.AutoModelForCausalLM.from_config(config).to(kind).train()
    shape = read_shape(config.to_dict())
    for tokens in (64, 200):
        measured = saved_bytes(model, tokens, kind)
        predicted = activations(shape, kind.itemsize, tokens, checkpointing=False)
        assert predicted == pytest.approx(measured, rel=0.1)


def test_the_chunk_of_logits_is_the_learners() -> None:
    from mas_train.learner.output_head import CHUNK

    assert LOGITS_CHUNK == CHUNK


def test_checkpointing_keeps_the_inputs_and_one_layer() -> None:
    shape = PUBLISHED["Qwen/Qwen3-0.6B"]
    inputs, last_norm = 28 * 2 * 1024 * 1000, 8 * 1024 * 1000
    assert activations(shape, 2, 1000, True) == inputs + last_norm
    assert activations(shape, 2, 1000, True) < activations(shape, 2, 1000, False) / 10
    again = activation_bytes(shape, 2) * 1000
    assert layer_bytes(shape, 2, 1000, True) == layer_bytes(shape, 2, 1000, False) + again


def test_keys_and_values_are_exactly_the_caches_tensors() -> None:
    config = hf_config("qwen2")
    model = transformers.AutoModelForCausalLM.from_config(config)
    past = model(input_ids=torch.zeros(2, 7, dtype=torch.long), use_cache=True).past_key_values
    real = sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers)
    assert cache_bytes(read_shape(config.to_dict()), 4) * 2 * 7 == real


# -- plans -----------------------------------------------------------------------------------------


def plan_of(name: str, *overrides: str) -> Any:
    from mas_train.config import load

    return make_plan(load(recipe(name), overrides))


def test_lora_trains_adapters_and_shares_the_base() -> None:
    whole = plan_of("math_qwen3_0.6b_one_gpu")
    small = plan_of(
        "math_qwen3_0.6b_one_gpu",
        "models.solver.lora={rank: 8}",
        "models.verifier.lora={rank: 8}",
    )
    shape = PUBLISHED["Qwen/Qwen3-0.6B"]
    moved = shape.lora_parameters(8, None)
    assert [model.trained for model in small.models] == [moved, moved]
    weights = [model.learner.weights for model in small.models]
    assert weights == [2 * (shape.parameters + moved), 2 * moved]
    assert small.peak(80 * GIB) < whole.peak(80 * GIB)
    engines = [model.engine(80 * GIB).awake for model in small.models]
    assert engines == [int(0.2 * 80 * GIB), 0]  # adapters on one engine


def test_lora_counts_what_peft_trains() -> None:
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    from mas_train.learner.lora import add_adapter

    config = hf_config("qwen3", attention_bias=True)
    base = transformers.AutoModelForCausalLM.from_config(config)
    for targets in (None, ["q_proj", "model.layers.1.mlp.up_proj"]):
        model = add_adapter(base, LoraConfig(rank=4, targets=targets))
        counted = read_shape(config.to_dict()).lora_parameters(4, targets)
        assert counted == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_devices_share_the_learner_and_only_it() -> None:
    one, four = (plan_of("math_qwen3_8b_shared", f"models.team.devices={n}") for n in (1, 4))
    a, b = one.models[0].learner, four.models[0].learner
    for key in ("weights", "gradients", "masters", "moments", "step_copies"):
        assert getattr(a, key) == 4 * getattr(b, key)
    assert (a.activations, a.logits) == (b.activations, b.logits)
    assert one.models[0].engine(80 * GIB) == four.models[0].engine(80 * GIB)


@pytest.mark.parametrize("name", sorted(recipes()))
def test_lowering_a_size_never_needs_more(name: str) -> None:
    base = plan_of(name)
    device = 40 * GIB
    for key, value in (
        ("gradient_checkpointing", "true"),
        ("lora", "{rank: 8}"),
        ("devices", "16"),
        ("engine.max_rows", "4"),
    ):
        models = [f"models.{model.name}" for model in base.models]
        alone = [f"{model}.devices=1" for model in models] if key == "lora" else []
        lowered = plan_of(name, *alone, *(f"{model}.{key}={value}" for model in models))
        base = plan_of(name, *alone)
        more = lowered.reserve - base.reserve  # a process of its own for each learner
        assert lowered.learning(device) <= base.learning(device) + more, key
        if key != "lora":  # adapters come on top of weights whose optimizer is offloaded
            assert lowered.playing(device) <= base.playing(device) + more, key
    assert plan_of(name, "train.token_budget=1024").peak(device) <= base.peak(device)


def test_what_does_not_fit_says_what_to_lower() -> None:
    def said(*overrides: str, size: int = 24) -> str:
        return "\n".join(plan_of("math_qwen3_0.6b_one_gpu", *overrides).shortfall(size * GIB))

    assert said(size=48) == ""
    assert "train.token_budget" in said("train.token_budget=200000",
                                        "models.solver.gradient_checkpointing=false")  # fmt: skip
    assert "models.solver.gradient_checkpointing: true" in said(
        "train.token_budget=20000", "models.solver.gradient_checkpointing=false"
    )
    assert "lora, optimizer.offload or more devices" in said(size=12)
    cache = said(
        "models.solver.engine={name: transformers, max_model_len: 4096}",
        "models.verifier.engine={name: transformers, max_model_len: 4096}",
    )
    assert "models.solver.engine.max_rows or rollout.max_tokens" in cache
    starved = said("models.solver.engine.memory=0.05")
    assert "models.solver.engine.memory: 0.05 of the device leaves" in starved
    awake = said("models.solver.engine.sleep=false", "models.solver.engine.memory=0.9", size=48)
    assert "(or set its sleep: true)" in awake


def test_the_work_of_a_step_by_hand() -> None:
    work = plan_of("math_qwen3_4b_shared").work
    turns = 32 * 8 * 4  # two drafts and two reviews, the last review when `final_review` is set
    assert (work.episodes, work.turns) == (256, 4)
    assert (work.tokens, work.sampled) == (turns * 12_288, turns * 4096)
    parameters = 4_022_468_096
    assert work.rollout_flops == 2 * parameters * work.tokens
    assert work.training_flops == 8 * parameters * work.tokens  # with gradient checkpointing
    search = plan_of("search_qwen2.5_7b_shared").work
    multiplied = 7_615_616_512 - 152_064 * 3584  # the head is another matrix
    assert search.rollout_flops == 2 * multiplied * search.tokens
    assert search.training_flops == 10 * multiplied * search.tokens  # old log-probs, too


def tiny_run(tmp_path: Path, **model: Any) -> Config:
    hf_config("qwen3").save_pretrained(tmp_path)
    return resolve(
        {
            "agents": {"solver": {"model": "a"}, "verifier": {"model": "b"}},
            "models": {
                "a": {"path": str(tmp_path), **model},
                "b": {"path": str(tmp_path), "optimizer": None},
            },
            "rollout": {"max_tokens": 64},
        }
    )


def test_frozen_models_have_engines_only(tmp_path: Path) -> None:
    plan = make_plan(tiny_run(tmp_path))
    trained, frozen = plan.models
    assert frozen.learner is None and frozen.trained == 0
    assert frozen.engine(GIB) == trained.engine(GIB)
    assert plan.resting == trained.learner.resting  # type: ignore[union-attr]


def test_lengths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, engine={"max_model_len": 257})
    with pytest.raises(UserError, match=r"models.a.engine.max_model_len: 257.*256 positions"):
        make_plan(config)
    with pytest.raises(UserError, match=r"rollout.max_tokens: 64 leaves no room"):
        make_plan(tiny_run(tmp_path, engine={"max_model_len": 64}))
    with pytest.raises(UserError, match=r"models.team.engine.max_model_len: is not set"):
        plan_of("search_qwen2.5_7b_shared", "models.team.engine.max_model_len=null")
    with pytest.raises(UserError, match=r"models.a: .*nobody/nothing"):
        make_plan(tiny_run(tmp_path, path="nobody/nothing"))


def test_a_learner_that_offloads_rests_with_its_weights_only() -> None:
    stays, leaves = (
        plan_of("math_qwen3_8b_shared", f"models.team.optimizer.offload={on}").models[0].learner
        for on in ("false", "true")
    )
    assert {**asdict(stays), "offloaded": True} == asdict(leaves)
    assert leaves.resting == leaves.weights
    assert plan_of("math_qwen3_8b_shared", "models.team.optimizer.offload=false").host == 0
    whole = plan_of("math_qwen3_8b_shared")  # float32 weights and two moments
    assert whole.host == 12 * whole.models[0].trained
    assert stays.resting == stays.weights + stays.masters + stays.moments


def test_a_kl_keeps_the_weights_it_began_with() -> None:
    name, key = "math_qwen3_4b_separate", "loss.kl={coefficient: 0.001, place: %s}"
    without = plan_of(name)
    weights = 2 * 4_022_468_096 // without.models[0].settings.devices
    for place in ("loss", "reward"):
        plan = plan_of(name, key % place)
        assert [model.learner.reference for model in plan.models] == [weights, weights]
        assert plan.peak(80 * GIB) == without.peak(80 * GIB) + 2 * weights
        [said] = [line for line in plan.shortfall(8 * GIB) if line.startswith("learning")]
        assert "the reference of loss.kl (by lora, kl: null" in said
    adapters = [
        f"models.{model.name}.{key}"
        for model in without.models
        for key in ("lora={rank: 8}", "devices=1")
    ]
    for model in plan_of(name, key % "loss", *adapters).models:
        assert model.learner.reference == 0  # the base without the adapter is the reference


def test_a_critic_is_counted() -> None:
    one, other = (
        plan_of("tinyworld_cpu", f"estimator.preset={preset}").models[0].learner
        for preset in ("drmas", "ppo")
    )
    critic = 1 + shape_of("mas-gym/search").hidden
    assert other.resting - one.resting == 12 * critic  # float32 and its moments
    assert other.gradients - one.gradients == 4 * critic


def test_each_process_has_its_own_reserve() -> None:
    name = "math_qwen3_4b_separate"
    alone = [f"models.{model.name}.devices=1" for model in plan_of(name).models]
    assert plan_of(name).reserve == 3 * RESERVE and plan_of(name, *alone).reserve == RESERVE
    assert plan_of(name).models[0].engine(80 * GIB).asleep == RESERVE


# -- the command -----------------------------------------------------------------------------------


def test_the_command_needs_no_torch() -> None:
    code = (
        "import sys; from mas_train.cli import app\n"
        "try: app(['plan', 'math_qwen3_4b_separate', '--gpu-memory', '80'])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "4,022,468,096, tied" in run.stdout and "80 GiB: fits" in run.stdout
    assert run.stdout.splitlines()[-1] == "False"


def test_the_command_judges_the_sizes_given_and_takes_overrides() -> None:
    arguments = ["plan", "math_qwen3_8b_shared", "--gpu-memory", "40", "--gpu-memory", "90"]
    result = CliRunner().invoke(app, [*arguments, "--set", "models.team.devices=1"])
    assert result.exit_code == 0
    assert "40 GiB: does not fit" in result.stdout and "24 GiB" not in result.stdout
    assert "over 1 device(s)" in result.stdout
    problem = CliRunner().invoke(app, [*arguments, "--set", "models.team.path=nobody/nothing"])
    assert problem.exit_code == 2 and "models.team: 'nobody/nothing'" in problem.output
