"""The sections about a model: its weights, how they are trained, what serves them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mas_train.config.section import AboveZero, Below1, NotNegative, Positive, Section


class OptimizerConfig(Section):
    """AdamW and its schedule. `warmup_steps` and decay count optimizer steps.

    `offload` keeps the optimizer's state in CPU memory while it is not stepping.
    """

    name: Literal["adamw"] = "adamw"
    lr: AboveZero = 1e-6
    betas: tuple[Below1, Below1] = (0.9, 0.999)
    eps: AboveZero = 1e-8
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    offload: bool = False


class LoraConfig(Section):
    """Low-rank adapters of PEFT (arXiv 2106.09685): W + (alpha / rank) B A, only A and B trained.

    Models with one path, revision and dtype that all have `lora` share the base weights: one
    adapter per model. Without `targets` every linear layer but the head has one.
    """

    rank: Positive = 16
    alpha: AboveZero = 32.0
    targets: list[str] | None = None


_VLLM = ("memory", "tensor_parallel", "eager", "sleep")


class EngineConfig(Section):
    """What generates for a model. `max_model_len` bounds prompt plus response in tokens (None:
    the model's own limit), `max_rows` the rows decoded at once.

    `transformers` runs in this process on any device. `vllm`: `memory` is the share of the GPU
    it may take, `sleep` frees that while the learner works, `eager` leaves CUDA graphs out.
    `http`: `url` of an OpenAI-compatible server that gives token ids; without those, and without a
    way to take weights, the model must be frozen. `fake` says nothing sensible at a given pace:
    for measuring all the rest.
    """

    name: Literal["transformers", "vllm", "http", "fake"] = "transformers"
    max_model_len: Positive | None = None
    max_rows: Positive = 256
    memory: Annotated[float, Field(gt=0, le=1)] = 0.45
    tensor_parallel: Positive = 1
    eager: bool = False
    sleep: bool = True
    url: str | None = None
    tokens_per_second: AboveZero = 20_000.0

    @model_validator(mode="after")
    def _own_keys(self) -> EngineConfig:
        where = f"engine {self.name!r}"
        if self.name != "vllm":
            self.refuse_changed(_VLLM, where, "vllm")
        if self.name != "http":
            self.refuse_changed(("url",), where, "http")
        else:
            self.refuse_changed(("max_model_len",), where, "an engine that runs the model itself")
            if not (self.url or "").startswith(("http://", "https://")):
                raise ValueError("engine 'http' needs a url, such as http://127.0.0.1:8000/v1")
        if self.name != "fake":
            self.refuse_changed(("tokens_per_second",), where, "fake")
        return self


class ModelConfig(Section):
    """Weights and how they are trained; without an optimizer they are frozen.

    `template` are arguments of the chat template ({enable_thinking: false}). `devices` is the
    number of processes over which the learner shards the model (FSDP). `gradient_checkpointing`
    computes activations twice instead of keeping them.
    """

    path: Annotated[str, Field(min_length=1)]
    revision: Annotated[str, Field(min_length=1)] = "main"
    dtype: Literal["float32", "bfloat16"] = "float32"
    optimizer: OptimizerConfig | None = OptimizerConfig()
    lora: LoraConfig | None = None
    engine: EngineConfig = EngineConfig()
    template: dict[str, Any] = {}
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    gradient_checkpointing: bool = False
