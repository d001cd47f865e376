"""Options that would do nothing beside others: refused, for whoever sets one expects something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mas_train.advantages import check_choices
from mas_train.config.models import ModelConfig

if TYPE_CHECKING:
    from mas_train.config.whole import Config


def refuse_no_effect(config: Config) -> None:
    """Raises `ValueError` that names the key, why it does nothing, and what to set instead."""
    for name, model in config.models.items():
        _model(f"models.{name}", model)
        _weights_of_agents(config, name)
    _one_episode_groups(config)
    _redraws(config)
    loss, overlong = config.loss, config.rollout.overlong
    if loss.surrogate == "reinforce" and (clips := loss.clip_low or loss.clip_high):
        raise ValueError(
            f"loss: surrogate 'reinforce' has no ratio to clip at {clips:g}; leave clip_low and "
            "clip_high out, or take surrogate: ppo"
        )
    if overlong is None:
        return
    if not overlong.mask and not overlong.buffer:
        raise ValueError(
            "rollout.overlong: does nothing without mask: true or a buffer; set one, or remove it"
        )
    if not overlong.buffer and overlong.changed("penalty"):
        raise ValueError("rollout.overlong.penalty: does nothing without a buffer; set one")
    if overlong.buffer > config.rollout.max_tokens:
        raise ValueError(
            f"rollout.overlong.buffer: {overlong.buffer} is more than rollout.max_tokens "
            f"{config.rollout.max_tokens}, so every turn would pay; lower it"
        )


def _model(where: str, model: ModelConfig) -> None:
    if model.lora is not None and model.devices > 1:
        raise ValueError(
            f"{where}.devices: {model.devices} processes train whole models only; remove "
            f"{where}.lora, or set devices: 1 (an adapter's optimizer is small)"
        )
    if model.engine.name == "http":
        if model.optimizer is not None:
            raise ValueError(
                f"{where}: engine 'http' cannot be given new weights; freeze the model "
                "(optimizer: null) or let engine 'vllm' or 'transformers' serve it"
            )
        if given := model.changed("revision", "dtype"):
            raise ValueError(
                f"{where}: engine 'http' makes no use of {', '.join(given)}; the server decides"
            )
    if model.optimizer is not None:
        return
    if model.lora is not None:
        raise ValueError(
            f"{where}.lora: a model without an optimizer is frozen and trains no adapter; remove "
            "lora (the folder of a trained adapter is given as path alone), or set an optimizer"
        )
    if given := model.changed("devices", "gradient_checkpointing"):
        raise ValueError(
            f"{where}: a model without an optimizer is frozen and makes no use of "
            f"{', '.join(given)}; remove it (an engine is spread by engine.tensor_parallel)"
        )


def _weights_of_agents(config: Config, model: str) -> None:
    """A `loss_weight` of an agent whose model is frozen."""
    played = {name: agent for name, agent in config.agents.items() if agent.model == model}
    if config.models[model].optimizer is None:
        for name, agent in played.items():
            if agent.loss_weight != 1:
                raise ValueError(
                    f"agents.{name}.loss_weight: {agent.loss_weight:g} does nothing, for its model "
                    f"{model!r} is frozen; leave it out"
                )


def _one_episode_groups(config: Config) -> None:
    """Of groups of one trajectory every advantage is 0: nothing would ever be learned."""
    one = config.estimator
    choice = check_choices(one.preset, one.unit, one.group, one.mean, one.std)
    if config.rollout.group_size > 1 or choice is None:
        return
    own_mean = choice.mean in ("group", "others") and "prompt" in choice.group.split("+")
    if choice.unit == "trajectory" and own_mean and not choice.step:
        raise ValueError(
            f"rollout.group_size: 1 leaves estimator {one.preset!r} nothing to compare an episode "
            "with, so every advantage would be 0; set it to 2 or more"
        )


def _redraws(config: Config) -> None:
    """Prompts drawn anew where a group that earned the same still has a gradient."""
    one = config.estimator
    if not config.rollout.redraws:
        return
    choice = check_choices(one.preset, one.unit, one.group, one.mean, one.std)
    beyond = choice is not None and (
        choice.mean == "running" or "prompt" not in choice.group.split("+")
    )
    if one.preset == "ppo" or beyond:
        raise ValueError(
            f"rollout.redraws: estimator {one.preset!r} learns from groups that all earned the "
            "same as well; leave redraws out"
        )
    if config.rollout.group_size == 1:
        raise ValueError(
            "rollout.redraws: every group of one episode would be drawn anew; set group_size to 2 "
            "or more, or leave redraws out"
        )
