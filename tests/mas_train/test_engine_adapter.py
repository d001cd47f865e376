"""What vLLM is told about an adapter's weights, and which are refused."""

import pytest

from mas_envs.errors import UserError

torch = pytest.importorskip("torch")

from mas_train.engines.adapter import adapter_config  # noqa: E402

LAYER = "base_model.model.model.layers.0.self_attn.{}.lora_{}.weight"


def weights(rank=4, targets=("q_proj", "v_proj")):
    return {
        LAYER.format(target, side): torch.zeros((rank, 8) if side == "A" else (6, rank))
        for target in targets
        for side in "AB"
    }


def test_the_configuration_is_that_of_the_weights():
    config = adapter_config(weights(), 16.0, 8)
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 16.0)
    assert config["target_modules"] == ["q_proj", "v_proj"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.update(weights(rank=2, targets=("k_proj",))), r"ranks \[2, 4\]"),
        (lambda w: w.pop(LAYER.format("v_proj", "B")), "v_proj has only lora_A"),
        (lambda w: w.update({"lm_head.weight": torch.zeros(2)}), "'lm_head.weight' is no lora_A"),
        (lambda w: w.clear(), r"ranks \[\]"),
    ],
)
def test_weights_that_are_no_adapter(change, message):
    given = weights()
    change(given)
    with pytest.raises(UserError, match=message):
        adapter_config(given, 16.0, 8)


def test_a_rank_that_vllm_has_no_room_for():
    with pytest.raises(UserError, match=r"ranks \[4\]; one is needed, at most 2"):
        adapter_config(weights(), 16.0, 2)
