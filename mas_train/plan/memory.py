"""Bytes on one device, item by item.

Notation: P parameters, T of them trained, w bytes of a weight (2 for bfloat16, 4 for float32), D
devices that share a learner (FSDP), d hidden size, f intermediate size, L layers, q and k numbers
in a token's queries and keys, V vocabulary, B tokens of a micro-batch.

    weights         w P / D              gradients   w T / D
    master weights  4 T / D (bfloat16)   moments     8 T / D
    reference       w P / D, with a KL and no adapter

Weights, gradients, masters and moments of bfloat16 are the 16 bytes a parameter of mixed-precision
Adam (ZeRO, arXiv 1910.02054, section 3.1). The optimizer's step, which is fused, has in addition a
float32 copy of bfloat16 gradients, 4 T / D; the activations are gone by then. Several agents on one
model: one more buffer of gradients, for their norms. FSDP gathers the embeddings and two layers at
a time in full.

Activations that the backward pass keeps, a token and layer, with this project's attention and
transformers' modules (RMSNorm computes in float32):

    norms       2 d (4 + 2 w)
    queries and keys   w (q + k), with norms of their own (q + k) (4 + 2 w)
    values, attention's output      w (k + q)
    feed-forward       4 w f

With gradient checkpointing a layer keeps its input, w d, and one layer at a time has all of the
above (arXiv 1604.06174). The gradients of a layer's own activations take about 2 w f + 16 d a token
while it is at work. The head is done before the layers are: of the B V logits at most
`LOGITS_CHUNK` exist at a time, and a head's gradient is made chunk by chunk, twice w V d; the last
hidden states, their gradients and the loss are about 3 w d + 128 a token. A value head has the last
hidden states in float32, and their gradient: 8 d a token.

Keys and values: 2 L k w bytes a token; `transformers` keeps up to max_rows x max_model_len of them,
vLLM fills its share of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from mas_train.config import EngineConfig, LoraConfig, ModelConfig
from mas_train.plan.shapes import Shape

GIB = 1 << 30
WIDTH = {"float32": 4, "bfloat16": 2}
RESERVE = 1 * GIB
"""An assumption: what a process has on a device for CUDA itself, its libraries and the allocator's
gaps. An engine in vLLM that sleeps has a process of its own, which stays."""
LOGITS_CHUNK = 2**27
"""Logits that exist at a time on a GPU: `mas_train.learner.output_head.CHUNK`."""
LOGITS_COPIES = 3
"""Float32 arrays of a single chunk: log-probabilities, their gradient, one in between."""
CHUNK_BYTES = 12
"""A logit where there are several chunks, which are overwritten; 4 more with an entropy bonus."""


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes per device. `masters` and `moments` are `offloaded` while not stepping.

    `activations` are kept until the backward pass reaches them; `layer` is what the layer at work
    has on top of that, `logits` and `head_gradients` what the head has.
    """

    weights: int
    gradients: int
    masters: int
    moments: int
    reference: int
    activations: int
    layer: int
    logits: int
    head_gradients: int
    step_copies: int
    norms_buffer: int
    gathered: int
    offloaded: bool

    @property
    def resting(self) -> int:
        """While others work."""
        held = self.weights + self.reference
        return held + (0 if self.offloaded else self.masters + self.moments)

    @property
    def backward(self) -> int:
        """In the backward pass, from the second micro-batch on."""
        held = self.resting + self.gradients + self.norms_buffer + self.gathered
        return held + self.activations + max(self.layer, self.logits + self.head_gradients)

    @property
    def step(self) -> int:
        """In the optimizer's step."""
        state = self.weights + self.reference + self.masters + self.moments
        return state + self.gradients + self.step_copies

    @property
    def working(self) -> int:
        """The larger of the two."""
        return max(self.backward, self.step)


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
    layer = width * shape.hidden if checkpointing else activation_bytes(shape, width)
    last_norm = shape.hidden * (4 + 2 * width)
    return (shape.layers * layer + last_norm) * tokens


def layer_bytes(shape: Shape, width: int, tokens: int, checkpointing: bool) -> int:
    """Bytes that the layer has on top of that while the backward pass is in it."""
    again = activation_bytes(shape, width) if checkpointing else 0
    return (again + 2 * width * shape.intermediate + 16 * shape.hidden) * tokens


def logits_bytes(shape: Shape, width: int, tokens: int, entropy: bool) -> int:
    """Of one chunk of logits, and what is computed from it; of the loss."""
    logits = tokens * shape.vocabulary
    around = (3 * width * shape.hidden + 128) * tokens
    if logits <= LOGITS_CHUNK:
        return (LOGITS_COPIES * 4 + width) * logits + around
    return (CHUNK_BYTES + 4 * entropy) * LOGITS_CHUNK + around


def trained(shape: Shape, lora: LoraConfig | None) -> int:
    """How many parameters the optimizer moves."""
    if lora is None:
        return shape.parameters
    return shape.lora_parameters(lora.rank, lora.targets)


def learner_memory(
    shape: Shape,
    model: ModelConfig,
    tokens: int,
    agents: int,
    *,
    reference: bool = False,
    value_head: bool = False,
    entropy: bool = False,
) -> LearnerMemory:
    """Of one trained model: `tokens` in a micro-batch, `agents` that it plays.

    `reference`: there is a KL to the weights that it started from; `value_head`: there is a critic;
    `entropy`: the loss has an entropy bonus.
    """
    width, devices, moved = WIDTH[model.dtype], model.devices, trained(shape, model.lora)
    own = shape.parameters + (moved if model.lora is not None else 0)
    half = width == 2
    assert model.optimizer is not None
    checkpointing = model.gradient_checkpointing
    head = 0 if model.lora is not None else width * shape.vocabulary * shape.hidden
    critic = shape.hidden + 1 if value_head else 0
    return LearnerMemory(
        weights=width * own // devices + 4 * critic,
        gradients=width * moved // devices + 4 * critic,
        masters=4 * moved // devices if half else 0,
        moments=8 * moved // devices + 8 * critic,
        reference=width * shape.parameters // devices if reference and not model.lora else 0,
        activations=activations(shape, width, tokens, checkpointing)
        + (8 * shape.hidden * tokens if value_head else 0),
        layer=layer_bytes(shape, width, tokens, checkpointing),
        logits=logits_bytes(shape, width, tokens, entropy),
        head_gradients=2 * head,
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
        asleep = RESERVE if engine.sleep else weights + cache
        return EngineMemory(weights, cache, per_token, asleep)
    cache = per_token * min(tokens, engine.max_rows * max_len)
    return EngineMemory(weights, cache, per_token, weights + cache)
