"""Adapters: the right gradient into the right adapter, one base in memory, exact resume."""

from __future__ import annotations

import copy
import json
import sys

import numpy as np
import pytest
import torch

from mas_envs.errors import BadFile, UserError
from mas_train.config import LoraConfig, LossConfig, ModelConfig, OptimizerConfig
from mas_train.engines.hf_model import load_pretrained
from mas_train.environment import make_env
from mas_train.learner.learner import Learner
from mas_train.learner.log_probs import row_log_probs
from mas_train.learner.lora import (
    adapted_model,
    adapter_off,
    adapter_weights,
    add_adapter,
    check_lora,
    load_adapter,
    merged_weights,
    save_adapter,
)
from mas_train.learner.weights import token_weights
from mas_train.loop import train
from mas_train.model_path import DEMO
from mas_train.run.checkpoint import existing
from mas_train.run.metrics_log import read_metrics
from mas_train.team import Team

LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
LORA = LoraConfig(rank=4, alpha=6.0)


def adapter(model):
    """Its weights (live) by name."""
    return adapter_weights(model.state_dict().items())


def merged(model, lora=LORA):
    return dict(merged_weights(model.state_dict().items(), lora))


def randomise(model, seed=0):
    """B away from 0, so that the adapter matters."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in adapter(model).values():
        tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
    return model


def learner(model, lr=1e-3, **options):
    return Learner(model, OptimizerConfig(lr=lr), **{"max_grad_norm": float("inf"), **options})


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def gradients(learner, rows, a):
    """By name in PEFT's files, what the optimizer sees in one update."""
    seen = {}

    def look(*_):
        pairs = zip(adapter(learner.model), learner.parameters, strict=True)
        seen.update({name: parameter.grad.clone() for name, parameter in pairs})

    handle = learner.optimizer.register_step_pre_hook(look)
    learner.update(rows, a, LossConfig(correction=None))
    handle.remove()
    return seen


# ---- what is trained ---------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_without_targets_every_linear_layer_but_the_head_has_an_adapter(tiny_qwen, tied):
    model = add_adapter(tiny_qwen(tie_word_embeddings=tied), LORA)
    adapted = {name.removesuffix(".weight").rpartition(".")[0] for name in adapter(model)}
    assert {name.rpartition(".")[2] for name in adapted} == LINEAR
    assert len(adapted) == 2 * len(LINEAR)  # 2 layers
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * len(adapted) and all(".lora_" in name for name in trained)


@pytest.mark.parametrize("targets", [["q_proj"], ["layers.1.self_attn.o_proj", "up_proj"]])
def test_targets_are_names_or_paths(tiny_qwen, targets):
    names = adapter(add_adapter(tiny_qwen(), LoraConfig(targets=targets)))
    found = {name.removeprefix("base_model.model.").rsplit(".", 2)[0] for name in names}
    linear = [n for n, m in tiny_qwen().named_modules() if isinstance(m, torch.nn.Linear)]
    want = {name for name in linear if name.endswith(tuple(f".{target}" for target in targets))}
    assert found == want


@pytest.mark.parametrize(
    "targets", [["q_proj", "query"], ["lm_head"], ["embed_tokens"], ["proj"], ["self_attn"], []]
)
def test_wrong_targets_are_refused_with_those_that_exist(tiny_qwen, targets):
    with pytest.raises(UserError) as caught:
        add_adapter(tiny_qwen(), LoraConfig(targets=targets), "models.a.lora")
    assert "models.a.lora.targets" in str(caught.value)
    assert all(name in str(caught.value) for name in LINEAR)


@pytest.mark.parametrize("rank", [1, 4])
def test_gradient_is_that_of_the_written_out_product(tiny_qwen, random_rows, rank):
    """d/dA and d/dB of a plain model with weights W + (alpha / r) B A, one row at a time."""
    plain, rows = tiny_qwen("float64"), random_rows(10)
    a = np.random.default_rng(1).normal(size=10)
    model = randomise(add_adapter(plain, LoraConfig(rank=rank, alpha=3.0)))
    leaves = {n: t.clone().requires_grad_() for n, t in adapter(model).items()}
    weights = dict(plain.named_parameters())
    for name in list(weights):
        key = "base_model.model." + name.removesuffix("weight")
        if f"{key}lora_A.weight" in leaves:
            product = leaves[f"{key}lora_B.weight"] @ leaves[f"{key}lora_A.weight"]
            weights[name] = weights[name] + 3.0 / rank * product
    per_token = token_weights([len(x) for x in rows.ids], LossConfig().aggregation)
    loss = torch.zeros((), dtype=torch.float64)
    for i, ids in enumerate(rows.ids):
        tokens = torch.tensor(np.concatenate([rows.prompt_ids[i], ids]), dtype=torch.long)
        logits = torch.func.functional_call(plain, weights, (tokens[None],)).logits[0]
        logits = logits[len(rows.prompt_ids[i]) - 1 : -1] / rows.temperature[i]
        chosen = torch.log_softmax(logits, -1)[torch.arange(len(ids)), tokens[-len(ids) :]]
        loss = loss - per_token[i] * a[i] * chosen.sum()
    loss.backward()
    got = gradients(learner(model, token_budget=40), rows, a)
    assert got.keys() == leaves.keys()
    for name, leaf in leaves.items():
        assert float((got[name] - leaf.grad).abs().max()) <= 1e-12 * float(leaf.grad.abs().max())
        assert float(leaf.grad.abs().max()) > 0


def test_a_step_moves_one_adapter_and_nothing_else(tiny_qwen, random_rows):
    base, rows = tiny_qwen(), random_rows()
    one, other = randomise(add_adapter(base, LORA), 1), randomise(add_adapter(base, LORA), 2)
    before, still, plain = (
        {name: tensor.clone() for name, tensor in adapter(one).items()},
        state(other),
        state(base),
    )
    learner(one).update(rows, np.ones(len(rows)), LossConfig(entropy=0.01))
    assert all(torch.equal(tensor, still[name]) for name, tensor in other.state_dict().items())
    assert all(torch.equal(tensor, plain[name]) for name, tensor in base.state_dict().items())
    moved = [not torch.equal(t, before[name]) for name, t in adapter(one).items()]
    assert all(moved)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_gradient_checkpointing_changes_no_gradient(tiny_qwen, random_rows, dtype):
    rows, a = random_rows(8), np.random.default_rng(0).normal(size=8)
    base = tiny_qwen(dtype)
    models = [randomise(add_adapter(base, LORA)) for _ in range(2)]
    kept = gradients(learner(models[0]), rows, a)
    again = gradients(learner(models[1], gradient_checkpointing=True), rows, a)
    assert models[1].is_gradient_checkpointing and not models[0].is_gradient_checkpointing
    for name, gradient in kept.items():
        assert torch.equal(again[name], gradient)


# ---- the base, the reference, the engine -------------------------------------------------------


def test_models_share_the_tensors_of_one_base():
    bases, cpu = {}, torch.device("cpu")
    settings = [ModelConfig(path=DEMO, lora=LORA, optimizer=OptimizerConfig(lr=r)) for r in (1, 2)]
    half = ModelConfig(path=DEMO, lora=LORA, dtype="bfloat16")
    a, b, c = (
        adapted_model(name, one, bases, device=cpu, seed=0)[0]
        for name, one in zip("abc", [*settings, half], strict=True)
    )
    assert len(bases) == 2
    pairs = list(zip(a.named_parameters(), b.parameters(), strict=True))
    for (name, p), q in pairs:
        assert (p.data_ptr() == q.data_ptr()) == (".lora_" not in name), name
    assert c.get_input_embeddings().weight.dtype == torch.bfloat16
    assert a.lm_head.weight.data_ptr() == a.model.embed_tokens.weight.data_ptr()  # still tied
    assert not torch.equal(*[next(iter(adapter(m).values())) for m in (a, b)])
    again, _ = adapted_model("a", settings[0], {}, device=cpu, seed=0)
    for name, tensor in adapter(again).items():  # the seed decides, not what came before
        assert torch.equal(tensor, adapter(a)[name])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_an_adapter_that_is_off_is_the_base(tiny_qwen, random_rows, dtype):
    base, rows = tiny_qwen(dtype), random_rows()
    want = row_log_probs(base, rows)
    model = learner(randomise(add_adapter(base, LORA))).model
    on = row_log_probs(model, rows)
    with adapter_off(model):
        off = row_log_probs(model, rows)
    assert all(np.array_equal(x, y) for x, y in zip(off, want, strict=True))
    assert not np.allclose(np.concatenate(on), np.concatenate(want), atol=1e-3)
    back = row_log_probs(model, rows)
    assert all(np.array_equal(x, y) for x, y in zip(back, on, strict=True))
    fresh = row_log_probs(add_adapter(base, LORA), rows)
    assert all(np.array_equal(x, y) for x, y in zip(fresh, want, strict=True))


@pytest.mark.parametrize("kind", ["qwen3", "qwen2"])
@pytest.mark.parametrize(("dtype", "nats"), [("float64", 1e-12), ("float32", 1e-5)])
def test_merged_weights_compute_what_the_adapter_does(tiny_qwen, random_rows, kind, dtype, nats):
    base, rows = tiny_qwen(dtype, kind), random_rows()
    engine, before = copy.deepcopy(base), state(base)
    model = randomise(add_adapter(base, LORA))
    for _ in range(2):  # nothing adds up
        engine.load_state_dict(merged(model))
    assert merged(model).keys() == base.state_dict().keys()
    got, want = (np.concatenate(row_log_probs(m, rows)) for m in (engine, model))
    assert np.abs(got - want).max() < nats
    assert np.abs(got - np.concatenate(row_log_probs(base, rows))).max() > 1e-2
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.state_dict().items())


def test_half_precision_is_rounded_once(tiny_qwen):
    model = randomise(add_adapter(tiny_qwen("bfloat16"), LORA))
    weights, rounded = model.state_dict(), merged(model)
    path = "model.layers.0.mlp.up_proj"
    a, b = (weights[f"{path}.lora_{x}.default.weight"].double() for x in "AB")
    exact = weights[f"{path}.base_layer.weight"].double() + 1.5 * b @ a
    assert float((rounded[f"{path}.weight"].double() - exact).abs().max()) <= float(
        (exact.bfloat16().double() - exact).abs().max() * 1.01
    )


# ---- on disk -----------------------------------------------------------------------------------


def test_peft_loads_what_is_saved(tiny_qwen, random_rows, tmp_path):
    from peft import PeftModel

    base, rows = tiny_qwen("float64"), random_rows()
    plain = copy.deepcopy(base)
    model = randomise(add_adapter(base, LORA))
    assert save_adapter(model, "solver-v12", tmp_path) == tmp_path / "solver-v12"
    theirs = PeftModel.from_pretrained(plain, tmp_path / "solver-v12").base_model.model
    got, want = (np.concatenate(row_log_probs(m, rows)) for m in (theirs, model))
    assert np.abs(got - want).max() < 1e-6  # PEFT keeps adapters in float32
    mine = add_adapter(base, LORA)
    load_adapter(mine, tmp_path / "solver-v12")
    for name, tensor in adapter(model).items():
        assert torch.equal(adapter(mine)[name], tensor)


def test_an_engine_with_adapters_is_pushed_what_is_saved(tiny_qwen, tmp_path):
    from mas_train.engines.adapter import adapter_config

    model = add_adapter(tiny_qwen(), LORA)
    saved = json.loads((save_adapter(model, "a", tmp_path) / "adapter_config.json").read_text())
    pushed = adapter_config(adapter(model), LORA.alpha, 16)
    assert pushed | {"target_modules": set(pushed["target_modules"])} == {
        **{key: saved[key] for key in pushed},
        "target_modules": set(saved["target_modules"]),
    }


def saved_demo(folder, name="solver"):
    settings = ModelConfig(path=DEMO, lora=LORA)
    model, tokenizer = adapted_model(name, settings, {}, device=torch.device("cpu"), seed=0)
    path = save_adapter(randomise(model), name, folder)
    tokenizer.save_pretrained(path)
    return model, path


def test_a_folder_with_an_adapter_loads_as_the_merged_model(tmp_path):
    model, path = saved_demo(tmp_path)
    config = json.loads((path / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == (DEMO, "main")
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 6, 0)
    plain, tokenizer = load_pretrained(path)
    assert tokenizer.chat_template and not hasattr(plain, "peft_config")
    assert all(parameter.requires_grad for parameter in plain.parameters())  # may be trained on
    for name, tensor in merged(model).items():
        assert torch.equal(plain.state_dict()[name], tensor)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model_name_or_path": "/nowhere"}, "base_model_name_or_path: .*/nowhere"),
        ({"base_model_name_or_path": None}, "does not name its base"),
        ({"r": 8}, "has shape"),
        ({"target_modules": ["q_proj"]}, "only the file has"),
        ({"use_dora": True}, "cannot be merged"),
        ({"lora_bias": True}, "cannot be merged"),
        ({"target_modules": ["embed_tokens", "q_proj"]}, "cannot be merged"),
        ({"target_modules": ["lm_head"]}, "cannot be merged"),
        ({"peft_type": "IA3"}, "IA3, not LORA"),
        ({"peft_type": "LORE"}, "not the configuration of an adapter"),
    ],
)
def test_a_folder_that_cannot_be_merged_says_why(tmp_path, changes, message):
    _, path = saved_demo(tmp_path)
    file = path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError, match=message) as caught:
        load_pretrained(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, None])
def test_a_damaged_adapter_is_named(tmp_path, damage):
    _, path = saved_demo(tmp_path)
    file = path / "adapter_model.safetensors"
    file.unlink() if damage is None else file.write_bytes(damage)
    with pytest.raises(BadFile, match=r"adapter_model\.safetensors"):
        load_pretrained(path)


def test_frozen_models_have_no_use_for_lora(tmp_path):
    with pytest.raises(UserError, match=r"models\.judge\.lora: .*frozen"):
        check_lora("judge", ModelConfig(path=DEMO, lora=LORA, optimizer=None))
    _, path = saved_demo(tmp_path)
    check_lora("judge", ModelConfig(path=str(path), lora=LORA, optimizer=None))


def test_without_peft_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)  # as Python marks what cannot be imported
    check_lora("a", ModelConfig(path=DEMO))
    with pytest.raises(UserError, match=r"models\.a\.lora needs peft: .*'mas-gym\[lora\]'"):
        check_lora("a", ModelConfig(path=DEMO, lora=LORA))


# ---- whole runs --------------------------------------------------------------------------------

TWO = ("models.solver.lora={rank: 4, alpha: 8}", "models.verifier.lora={rank: 2, alpha: 4}",
       "models.solver.optimizer.lr=0.003", "models.verifier.optimizer.lr=0.001",
       "models.verifier.optimizer.schedule=linear")  # fmt: skip


def adapters(folder):
    """All trained tensors of the newest checkpoint, as {model/name: array}."""
    from safetensors.numpy import load_file

    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    return {
        f"{file.parent.name}/{name}": array
        for file in newest.glob("*/adapter_model.safetensors")
        for name, array in load_file(file).items()
    }


def test_two_adapters_on_one_base_train_and_a_resumed_run_equals_a_whole_one(config):
    options = (*TWO, "loss.kl={coefficient: 0.1, estimator: k3}", "rollout.prompts_per_step=2")
    whole, parts = train(config(*options, "run.name=whole")), config(*options, "run.name=parts")

    class Ended(Exception):
        pass

    def end(metrics):
        raise Ended

    with pytest.raises(Ended):  # after the first of two steps
        train(parts, watch=end)
    assert [path.name for path in existing(parts.folder / "checkpoints")] == ["step-000001"]
    train(parts, resume=True)
    one, other = adapters(whole), adapters(parts.folder)
    assert one.keys() == other.keys() and {n.split("/")[0] for n in one} == {"solver", "verifier"}
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert all(np.any(one[name]) for name in one)  # B was 0
    first, *_, last = read_metrics(whole / "metrics.jsonl")
    assert first["models"]["solver"]["kl_reference"] == 0
    assert last["models"]["solver"]["kl_reference"] != 0
    assert last["models"]["solver"]["lr"] == 0.003
    assert 0 <= last["models"]["verifier"]["lr"] < 0.001
    assert not list(whole.glob("checkpoints/*/*/model.safetensors"))


def test_a_team_has_its_base_once_with_frozen_agents_too(config):
    team = Team(config(TWO[0], "models.verifier.optimizer=null"))
    solver, frozen = team.trained["solver"].learner.model, team.engines["verifier"].model
    plain = dict(frozen.named_parameters())
    for name, parameter in solver.named_parameters():
        if ".lora_" not in name:
            shared = plain[name.replace(".base_layer.", ".")]
            assert parameter.data_ptr() == shared.data_ptr()
    assert frozen.config._attn_implementation != solver.config._attn_implementation


def test_a_checkpoint_is_benchmarked_and_refuses_another_rank(config):
    from benchmarks.policies import Source, team

    settings = config(*TWO, "train.steps=1", "rollout.prompts_per_step=2")
    folder = train(settings)
    policies, records = team([str(folder)], make_env(settings), Source())
    assert all(record["fingerprint"] for record in records.values())
    plain = load_pretrained(DEMO)[0].state_dict()
    for role in ("solver", "verifier"):
        weights = policies[role].model.state_dict()
        changed = {name for name, tensor in weights.items() if not torch.equal(tensor, plain[name])}
        assert {name.split(".")[-2] for name in changed} == LINEAR
    with pytest.raises(BadFile, match=r"solver.adapter_model\.safetensors.*shape.*rank"):
        train(config(*TWO, "models.solver.lora.rank=3", "train.steps=2"), resume=True)
