"""Bytes on one device, item by item.

Notation: P parameters, T of them trained, w bytes of a weight (2 for bfloat16, 4 for float32), D
devices that share a learner (FSDP), d hidden size, f intermediate size, L layers, q and k numbers
in a token's queries and keys, V vocabulary, B tokens of a micro-batch.

    weights         w P / D              gradients   w T / D
    master weights  4 T / D (bfloat16)   moments     8 T / D

which for bfloat16 is the 16 bytes a parameter of mixed-precision Adam (ZeRO, arXiv 1910.02054,
section 3.1). The optimizer's step needs a float32 copy of bfloat16 gradients, 4 T / D, when the
activations are gone. Several agents on one model: one more buffer of gradients, for their norms.
FSDP gathers the embeddings and two layers at a time in full.

Activations that the backward pass keeps, a token and layer, with this project's attention and
transformers' modules (RMSNorm computes in float32):

    norms       2 d (4 + 2 w)
    queries and keys   w (q + k), with norms of their own (q + k) (4 + 2 w)
    values, attention's output      w (k + q)
    feed-forward       4 w f

With gradient checkpointing a layer keeps its input, w d, and one layer at a time has all of the
above (arXiv 1604.06174). Of the
B V logits at most `LOGITS_CHUNK` exist at a time, `LOGITS_COPIES` times in float32 and once in w.

Keys and values: 2 L k w bytes a token; `transformers` keeps up to max_rows x max_model_len of them,
vLLM fills its share of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from mas_train.config import EngineConfig, LoraConfig, ModelConfig
from mas_train.plan.shapes import Shape

GIB = 1 << 30
WIDTH = {"float32": 4, "bfloat16": 2}
LOGITS_CHUNK = 2**27
"""Logits that exist at a time on a GPU: `mas_train.learner.output_head.CHUNK`."""
LOGITS_COPIES = 3
"""Float32 arrays of so many: log-probabilities, their gradient, one in between."""


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes per device. `state` is master weights and moments; `offloaded` while not stepping."""

    weights: int
    gradients: int
    masters: int
    moments: int
    activations: int
    logits: int
    step_copies: int
    norms_buffer: int
    gathered: int
    offloaded: bool

    @property
    def resting(self) -> int:
        """While others work."""
        return self.weights + (0 if self.offloaded else self.masters + self.moments)

    @property
    def working(self) -> int:
        """The larger of: the backward pass, the optimizer's step."""
        backward = self.resting + self.gradients + self.norms_buffer
        backward += self.activations + self.logits + self.gathered
        step = self.weights + self.masters + self.moments + self.gradients + self.step_copies
        return max(backward, step)


@dataclass(frozen=True)
class EngineMemory:
    """Bytes per device. `cache` is all keys and values it may hold, `per_token` those of a token.

    `asleep` is what stays while the learner works.
    """

    weights: int
    cache: int
    per_token: int
    asleep: int

    @property
    def awake(self) -> int:
        """While it generates."""
        return self.weights + self.cache


def activation_bytes(shape: Shape, width: int) -> int:
    """Of one token in one layer, kept for the backward pass (see above)."""
    norms = 2 * shape.hidden * (4 + 2 * width)
    queries_keys = shape.query_width + shape.kv_width
    rotated = queries_keys * width + queries_keys * (4 + 2 * width) * shape.qk_norm
    attention = width * (shape.kv_width + shape.query_width)
    return norms + rotated + attention + 4 * width * shape.intermediate


def activations(shape: Shape, width: int, tokens: int, checkpointing: bool) -> int:
    """Bytes that a forward pass over `tokens` keeps for its backward pass, without the logits."""
    layer = activation_bytes(shape, width) * tokens
    last_norm = shape.hidden * (4 + 2 * width) * tokens
    if checkpointing:
        return shape.layers * width * shape.hidden * tokens + layer + last_norm
    return shape.layers * layer + last_norm


def trained(shape: Shape, lora: LoraConfig | None) -> int:
    """How many parameters the optimizer moves."""
    if lora is None:
        return shape.parameters
    return shape.lora_parameters(lora.rank, lora.targets)


def learner_memory(shape: Shape, model: ModelConfig, tokens: int, agents: int) -> LearnerMemory:
    """Of one trained model: `tokens` in a micro-batch, `agents` that it plays."""
    width, devices, moved = WIDTH[model.dtype], model.devices, trained(shape, model.lora)
    own = shape.parameters + (moved if model.lora is not None else 0)
    half = width == 2
    assert model.optimizer is not None
    return LearnerMemory(
        weights=width * own // devices,
        gradients=width * moved // devices,
        masters=4 * moved // devices if half else 0,
        moments=8 * moved // devices,
        activations=activations(shape, width, tokens, model.gradient_checkpointing),
        logits=(LOGITS_COPIES * 4 + width) * min(LOGITS_CHUNK, tokens * shape.vocabulary),
        step_copies=4 * moved // devices if half else 0,
        norms_buffer=width * moved // devices if agents > 1 else 0,
        gathered=width * (shape.embedding + 2 * shape.layer) if devices > 1 else 0,
        offloaded=model.optimizer.offload,
    )


def cache_bytes(shape: Shape, width: int) -> int:
    """Keys and values of one token."""
    return 2 * shape.layers * shape.kv_width * width


def engine_memory(
    shape: Shape, model: ModelConfig, max_len: int, tokens: int, device: int
) -> EngineMemory:
    """Of one engine on a device of `device` bytes; `tokens` is what may be in flight at once."""
    engine: EngineConfig = model.engine
    width = WIDTH[model.dtype]
    if engine.name in ("http", "fake"):
        return EngineMemory(0, 0, 0, 0)
    share = engine.tensor_parallel if engine.name == "vllm" else 1
    weights = width * shape.parameters // share
    per_token = cache_bytes(shape, width) // share
    if engine.name == "vllm":
        whole = int(engine.memory * device)
        cache = max(whole - weights, 0)
        return EngineMemory(weights, cache, per_token, 0 if engine.sleep else weights + cache)
    cache = per_token * min(tokens, engine.max_rows * max_len)
    return EngineMemory(weights, cache, per_token, weights + cache)
