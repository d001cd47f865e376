"""`mas-train export`: the checkpoint's bits in folders that transformers load; damage is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mas_envs.errors import BadFile, UnknownName, UserError  # noqa: E402
from mas_train.cli import app  # noqa: E402
from mas_train.demo import tiny_model  # noqa: E402
from mas_train.run import checkpoint as checkpoints  # noqa: E402
from mas_train.run.export import checkpoint_of, export  # noqa: E402


class Trained:
    """What a team hands to a checkpoint, without training it first."""

    def __init__(self, seed: int, dtype: Any = torch.float32, tied: bool = True) -> None:
        self.model = tiny_model.build_model(seed, num_hidden_layers=1).to(dtype)
        if not tied:
            self.model.config.tie_word_embeddings = False
            weight = self.model.lm_head.weight
            self.model.lm_head.weight = torch.nn.Parameter(weight.detach() + 1)

    def save(self, folder: Path, optimizer_file: Path) -> None:
        tiny_model.save(self.model, folder)
        optimizer_file.write_bytes(b"moments")


TEAM = {
    "env": {"id": "debate-v0"},
    "agents": {"debater": "a", "debater_1": "b", "judge": "c"},
    "frozen": {"c": "Qwen/Qwen3-4B"},
    "max_tokens": 40,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two checkpoints; model a is bfloat16 and tied, b float32 and untied."""
    folder = tmp_path / "run"
    for step in (1, 2):
        models = {"a": Trained(step, torch.bfloat16), "b": Trained(10 + step, tied=False)}
        state = {"episodes": [0, 0], "team": TEAM}
        checkpoints.save(folder / "checkpoints", step, models, state, keep=2)
    return folder


def bits(model: Any) -> dict[str, bytes]:
    """Every weight's bytes; comparable across dtypes that differ."""
    return {
        name: tensor.contiguous().view(torch.uint8).numpy().tobytes()
        for name, tensor in model.state_dict().items()
    }


def test_every_trained_model_of_the_newest_checkpoint_bit_for_bit(run: Path) -> None:
    out = run.parent / "out"
    assert export(run, out) == {"a": out / "a", "b": out / "b"}
    wanted = {"a": Trained(2, torch.bfloat16), "b": Trained(12, tied=False)}
    for name, trained in wanted.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(out / name, dtype="auto")
        assert bits(model) == bits(trained.model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out / name)
        assert tokenizer.chat_template == tiny_model.CHAT_TEMPLATE
        assert tokenizer.encode("\\boxed{1}") == tiny_model.build_tokenizer().encode("\\boxed{1}")
        ends = transformers.GenerationConfig.from_pretrained(out / name).eos_token_id
        assert ends == tokenizer.eos_token_id
    assert not list(out.rglob("*.pt")) and not list(out.rglob("state.json"))
    assert {path.name for path in run.parent.iterdir()} == {"run", "out"}  # nothing else is left


@pytest.mark.parametrize(
    ("agent", "seed", "dtype", "tied"),
    [("debater", 1, torch.bfloat16, True), ("debater_0", 1, torch.bfloat16, True),
     ("debater_1", 11, torch.float32, False)],
)  # fmt: skip
def test_one_agent_of_a_given_checkpoint(
    run: Path, agent: str, seed: int, dtype: Any, tied: bool
) -> None:
    out = run.parent / "deep" / "out"
    export(run / "checkpoints" / "step-000001", out, agent)
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert bits(model) == bits(Trained(seed, dtype, tied).model)


def test_a_generation_config_is_made_where_there_is_none(run: Path) -> None:
    for file in run.rglob("generation_config.json"):
        file.unlink()
    export(run, run.parent / "out")
    made = json.loads((run.parent / "out" / "a" / "generation_config.json").read_text())
    assert made["eos_token_id"] == tiny_model.build_tokenizer().eos_token_id


# -- refusals --------------------------------------------------------------------------------------


def nothing_left(run: Path) -> bool:
    return {path.name for path in run.parent.iterdir()} == {"run"}


def test_nothing_is_overwritten(run: Path) -> None:
    out = run.parent / "out"
    out.mkdir()
    with pytest.raises(UserError, match="nothing is overwritten"):
        export(run, out)
    out.rmdir()
    out.symlink_to(run.parent / "nowhere")
    with pytest.raises(UserError, match="nothing is overwritten"):
        export(run, out)


def test_agents_that_cannot_be_exported(run: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'judge'"):
        export(run, run.parent / "out", "judges")
    with pytest.raises(UserError, match="'c' was not trained; it is Qwen/Qwen3-4B"):
        export(run, run.parent / "out", "judge")
    assert nothing_left(run)


def test_what_is_no_run(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match="neither a checkpoint nor a run"):
            checkpoint_of(folder)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: _cut(folder / "a/model.safetensors"), r"a/model\.safetensors: damaged"),
        (lambda folder: (folder / "a/model.safetensors").unlink(), r"a: has no \*\.safetensors"),
        (lambda folder: shutil.rmtree(folder / "b"), "b: is missing"),
        (lambda folder: (folder / "a/config.json").write_text("{"), r"a: does not load"),
        (lambda folder: (folder / "b/tokenizer.json").write_text("{"), r"b: does not load"),
        (lambda folder: (folder / "state.json").write_text("{"), r"state\.json: not JSON"),
        (lambda folder: (folder / "state.json").write_text('{"schema": 1}'), r"does not say"),
    ],
)
def test_damage_names_the_file_and_leaves_nothing(run: Path, damage: Any, said: str) -> None:
    damage(run / "checkpoints" / "step-000002")
    with pytest.raises(BadFile, match=said):
        export(run, run.parent / "out")
    assert nothing_left(run)


def test_a_tokenizer_without_a_template_is_refused(run: Path) -> None:
    file = run / "checkpoints" / "step-000002" / "a" / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["chat_template"]
    file.write_text(json.dumps(settings))
    with pytest.raises(BadFile, match="a: its tokenizer has no chat template"):
        export(run, run.parent / "out")


def test_a_folder_that_cannot_be_written(run: Path) -> None:
    (run.parent / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        export(run, run.parent / "file" / "out")


# -- LoRA ------------------------------------------------------------------------------------------


@pytest.fixture
def lora_run(tmp_path: Path) -> tuple[Path, Any]:
    """A run whose model is an adapter on a base that lies in a folder, and that model."""
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    from mas_train.config import LoraConfig, ModelConfig
    from mas_train.learner.lora import adapted_model, save_adapter

    tiny_model.save(tiny_model.build_model(3, num_hidden_layers=1), tmp_path / "base")
    settings = ModelConfig(path=str(tmp_path / "base"), lora=LoraConfig(rank=4))
    model, tokenizer = adapted_model("a", settings, {}, device=torch.device("cpu"), seed=0)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 10

    class Adapter:
        def save(self, folder: Path, optimizer_file: Path) -> None:
            save_adapter(model, folder.name, folder.parent)
            tokenizer.save_pretrained(folder)
            optimizer_file.write_bytes(b"")

    team = {**TEAM, "agents": {"solver": "a"}, "frozen": {}}
    state = {"episodes": [0, 0], "team": team}
    checkpoints.save(tmp_path / "run" / "checkpoints", 1, {"a": Adapter()}, state, keep=1)
    return tmp_path / "run", model


def test_an_adapter_is_merged_into_its_base(lora_run: tuple[Path, Any]) -> None:
    run, model = lora_run
    export(run, run.parent / "out", "solver")
    merged = transformers.AutoModelForCausalLM.from_pretrained(run.parent / "out")
    assert not (run.parent / "out" / "adapter_config.json").exists()
    from mas_train.config import LoraConfig
    from mas_train.learner.lora import adapter_off, merged_weights

    ids = torch.arange(20)[None]
    with torch.no_grad():
        ours, theirs = merged(ids).logits, model(ids).logits
        with adapter_off(model):
            assert not torch.allclose(model(ids).logits, theirs, atol=1e-3)  # the adapter matters
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    pushed = dict(merged_weights(model.state_dict().items(), LoraConfig(rank=4)))
    assert all(torch.equal(pushed[name], w) for name, w in merged.state_dict().items())


def test_a_base_that_is_gone_names_the_adapter(lora_run: tuple[Path, Any]) -> None:
    run, _ = lora_run
    shutil.rmtree(run.parent / "base")
    with pytest.raises(UserError, match=r"adapter_config\.json"):
        export(run, run.parent / "out")


def test_without_peft_the_extra_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    (run / "checkpoints" / "step-000002" / "a" / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"a holds an adapter.*mas-gym\[lora\]"):
        export(run, run.parent / "out")


# -- the command -----------------------------------------------------------------------------------


def test_the_command_says_who_plays_what(run: Path) -> None:
    out = run.parent / "out"
    result = CliRunner().invoke(app, ["export", str(run), str(out)])
    assert result.exit_code == 0
    said = [f"{out / 'a'}: plays debater", f"{out / 'b'}: plays debater_1"]
    assert result.stdout.splitlines() == said
    again = CliRunner().invoke(app, ["export", str(run), str(out)])
    assert again.exit_code == 2 and "nothing is overwritten" in again.output
