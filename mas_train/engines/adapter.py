"""One of several low-rank adapters that a vLLM engine keeps on one set of weights.

The agents that share a base cost one model and little more; "adapter off" is the model that they
started from. vLLM reads adapters from files and keeps keys and values by adapter name, so every
version has a name and a folder of its own (`solver-v12`) and none is loaded in place.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mas_envs.episodes.schema import LogProbs
from mas_envs.errors import UserError
from mas_envs.policies.base import Request, Response
from mas_train.engines.base import Stats

if TYPE_CHECKING:
    import torch

    from mas_train.engines.vllm import VLLMEngine

_IDS = itertools.count(1)  # vLLM's, which must differ across all adapters and versions
KEPT = 2
"""Versions whose files stay: rows in flight may still need the last one."""


@dataclass(frozen=True)
class Loaded:
    """A version of an adapter as vLLM knows it."""

    version: int
    request: Any  # vLLM's LoRARequest


class Adapter:
    """An `Engine` (see base.py) over `base`, whose weights are another engine's plus a product BA.

    `name` is the `model` of its responses, `alpha` over the rank scales the product (PEFT's
    convention). Until weights are loaded it is the base model.
    """

    def __init__(self, base: VLLMEngine, name: str, alpha: float) -> None:
        self.base, self.name, self.alpha = base, name, alpha
        self.version = base.version
        self.stats = Stats()
        self._now: Loaded | None = None
        self._plain = re.sub(r"[^\w.-]", "_", name)  # as a file's name
        self._files = tempfile.TemporaryDirectory(prefix=f"{self._plain}-")
        self._folders: list[Path] = []

    async def act(self, request: Request) -> Response:
        """See `Engine`."""
        response = await self.base.ask(request, self._now)
        self.stats.requests += 1
        self.stats.tokens += 0 if response.ids is None else len(response.ids)
        return msgspec.structs.replace(response, model=self.name)

    def load_weights(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], version: int
    ) -> None:
        """See `Engine`; `weights` are all of the adapter's, under the names that PEFT saves.

        Rows in flight end with the version they began with.
        """
        from safetensors.torch import save_file

        given = {name: tensor.detach().cpu().contiguous() for name, tensor in dict(weights).items()}
        config = adapter_config(given, self.alpha, self.base.lora_rank)
        folder = Path(self._files.name) / f"{self._plain}-v{version}"
        if folder in self._folders:
            raise UserError(f"adapter {self.name!r} has had a version {version}; give it a new one")
        folder.mkdir()
        save_file(given, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        self._now = Loaded(version, self.base.add_adapter(folder.name, next(_IDS), folder))
        self.version = version
        self._folders.append(folder)
        for old in self._folders[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def probe(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> LogProbs:
        """See `Engine`."""
        return self.base.probe_with(prompt_ids, ids, self._now)

    def pause(self) -> None:
        """See `Engine`: pauses all that share the base."""
        self.base.pause()

    def resume(self) -> None:
        """See `Engine`: resumes all that share the base."""
        self.base.resume()

    def sleep(self) -> None:
        """See `Engine`: the base sleeps, with all its adapters."""
        self.base.sleep()

    def close(self) -> None:
        """Delete the files; the last adapter closes the base too."""
        self._files.cleanup()
        self.base.release(self)


def adapter_config(
    weights: Mapping[str, torch.Tensor], alpha: float, largest: int
) -> dict[str, Any]:
    """PEFT's adapter_config.json of these weights, `lora_A` [r, in] and `lora_B` [out, r] a layer.

    Raises `UserError` for anything else, for different ranks, and for one above `largest`.
    """
    sides: dict[str, set[str]] = {}
    ranks = set()
    for name, tensor in weights.items():
        layer, _, side = name.removesuffix(".weight").rpartition(".")
        if side not in ("lora_A", "lora_B") or not name.endswith(".weight"):
            raise UserError(f"adapter push: {name!r} is no lora_A.weight and no lora_B.weight")
        sides.setdefault(layer, set()).add(side)
        ranks.add(int(tensor.shape[0 if side == "lora_A" else 1]))
    if halves := sorted(layer for layer, both in sides.items() if len(both) < 2):
        raise UserError(f"adapter push: {halves[0]} has only {sides[halves[0]].pop()}; push both")
    if len(ranks) != 1 or max(ranks) > largest:
        raise UserError(f"adapter push: ranks {sorted(ranks)}; one is needed, at most {largest}")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": ranks.pop(),
        "lora_alpha": alpha,
        "target_modules": sorted({layer.rpartition(".")[2] for layer in sides}),
        "bias": "none",
    }
