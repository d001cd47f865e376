"""The shapes that `mas-train plan` reckons with, against real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mas_envs.errors import UserError  # noqa: E402
from mas_train.plan.shapes import PUBLISHED, read_shape, shape_of  # noqa: E402
from tests.mas_train.plan_cases import TINY, config_of, hf_config, on_meta  # noqa: E402


@pytest.mark.parametrize("path", sorted(PUBLISHED))
def test_the_table_counts_what_transformers_builds(path: str) -> None:
    model = on_meta(config_of(PUBLISHED[path]))
    assert PUBLISHED[path].parameters == model.num_parameters()
    assert PUBLISHED[path].parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen2", {}),
        ("qwen3", {}),
        ("qwen3", {"attention_bias": True}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
    ],
)
def test_a_config_file_counts_what_transformers_builds(
    family: str, changes: dict[str, Any], tied: bool, tmp_path: Path
) -> None:
    config = hf_config(family, tie_word_embeddings=tied, **changes)
    config.save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    model = on_meta(config)
    assert shape.parameters == model.num_parameters()
    linears = {
        name.rsplit(".", 1)[1]: (one.in_features, one.out_features, one.bias is not None)
        for name, one in model.model.layers[0].named_modules()
        if isinstance(one, torch.nn.Linear)
    }
    assert shape.linears() == linears
    widths = [(3, i, o) for i, o, _ in (linears["q_proj"], linears["down_proj"])]
    expected = sum(layers * 4 * (i + o) for layers, i, o in widths)
    assert shape.lora_parameters(4, ["q_proj", "down_proj"]) == expected
    one = shape.lora_parameters(4, ["model.layers.1.self_attn.q_proj"])
    assert one == 4 * sum(linears["q_proj"][:2])
    assert shape.lora_parameters(4, ["q_proj", "model.layers.1.self_attn.q_proj"]) == 3 * one
    with pytest.raises(UserError, match=r"no layer is called 'proj'.*q_proj, k_proj"):
        shape.lora_parameters(4, ["proj"])


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_what_a_config_file_leaves_out_is_what_transformers_makes_of_it(family: str) -> None:
    said = {key: value for key, value in TINY.items() if key != "head_dim"}
    shape = read_shape({"model_type": family, **said})
    model = on_meta(transformers.AutoConfig.for_model(family, **said))
    assert shape.parameters == model.num_parameters()


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'some/model' is no folder.*Qwen/Qwen3-4B"):
        shape_of("some/model")
    file = tmp_path / "config.json"
    for text, said in (
        ('{"model_type": "gpt2"}', "config.json: model_type 'gpt2'"),
        ("{", "not the configuration of a model"),
        ('{"model_type": "qwen3", "hidden_size": 64}', "num_attention_heads"),
        ("[]", "not the configuration"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=said):
            shape_of(str(tmp_path))
