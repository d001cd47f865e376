"""What a run used: calls, tokens and seconds of every agent, and what that costs.

Counted are the turns of every stored episode, those of failed and of repeated ones too, since a
cost includes them. (`benchmarks.diagnostics` counts those of finished episodes only, to say what an
episode takes.) A request that got no answer is in no episode and is not counted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mas_envs.episodes.schema import Episode, Turn
from mas_envs.errors import BadFile

MILLION = 1_000_000
NEARLY_ALL = 0.9  # from here on, calls that do not fit the context mean that nothing was measured
COUNTED = "all stored turns, of failed and of repeated episodes too"


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """USD per million tokens of the prompt and of the response."""

    prompt: float
    response: float


Prices = Mapping[str, Price]
"""By the name of the model, as the episodes' turns have it."""


def read_prices(path: Path) -> dict[str, Price]:
    """A price table in YAML. Raises `BadFile` naming the model.

    Qwen3-4B: {prompt: 0.05, response: 0.20}   # USD per million tokens
    """
    import yaml

    from mas_envs.yaml_tree import read_tree

    fix = "write a line `MODEL: {prompt: USD, response: USD}` for each, per million tokens"
    try:
        content = read_tree(path.read_text("utf-8"))
    except OSError as error:
        raise BadFile(path, f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise BadFile(path, f"not YAML: {getattr(error, 'problem', error)}", line, fix) from None
    if not isinstance(content, dict) or not content:
        raise BadFile(path, "no price table", fix=fix)
    found = {}
    for model, price in content.items():
        try:
            found[str(model)] = one = msgspec.convert(price, Price)
        except msgspec.ValidationError as error:
            raise BadFile(path, f"model {model!r}: {error}", fix=fix) from None
        if not all(0 <= usd < math.inf for usd in (one.prompt, one.response)):
            raise BadFile(path, f"model {model!r}: a price must be a number from 0 up", fix=fix)
    return found


class _Calls:
    """The calls of one agent to one model. `uncounted`: of those nobody counted the tokens."""

    def __init__(self) -> None:
        self.calls = self.failed_calls = self.uncounted = 0
        self.truncated = self.overflowed = self.empty = 0
        self.prompt_tokens = self.response_tokens = 0
        self.seconds = array("d")

    def add(self, turn: Turn, failed: bool) -> None:
        self.calls += 1
        self.failed_calls += failed
        self.truncated += turn.finish_reason == "length"
        self.overflowed += turn.finish_reason == "overflow"
        if turn.finish_reason != "overflow":
            # A prompt too long is refused unread; every other one has tokens, and so has its
            # answer: at the least the one that ends it.
            self.uncounted += 0 in (turn.prompt_tokens, turn.response_tokens)
            self.empty += turn.finish_reason != "length" and not turn.text.strip()
        self.prompt_tokens += turn.prompt_tokens
        self.response_tokens += turn.response_tokens
        self.seconds.append(turn.seconds)

    def cost(self, price: Price | None) -> float | None:
        """In USD; None where the price or a count is missing."""
        if price is None or self.uncounted:
            return None
        usd = price.prompt * self.prompt_tokens + price.response * self.response_tokens
        return usd / MILLION


_COUNTS = ("calls", "failed_calls", "truncated", "overflowed", "empty", "uncounted",
           "prompt_tokens", "response_tokens")  # fmt: skip


class Usage:
    """Adds up episodes; grows by one number (8 bytes) per call."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, _Calls]] = {}

    def add(self, episode: Episode) -> None:
        """Count an episode's turns; of a fork only those from its decision on, as it repeats the
        others, which were paid for. (One that does not tell its decision is left out.)
        """
        failed, start = episode.status != "done", 0
        if "fork" in episode.provenance:
            start = int(episode.provenance.get("decision", len(episode.events)))
        for turn in (turn for turn in episode.turns if turn.index >= start):
            models = self._calls.setdefault(turn.agent, {})
            if (calls := models.get(turn.model)) is None:
                calls = models[turn.model] = _Calls()
            calls.add(turn, failed)

    def problem(self, episodes: int) -> str | None:
        """Why so many episodes measured no model: an agent's prompts did not fit its context."""
        for agent, models in sorted(self._calls.items()):
            calls = sum(each.calls for each in models.values())
            overflowed = sum(each.overflowed for each in models.values())
            if overflowed and overflowed >= NEARLY_ALL * max(calls, episodes):
                return (
                    f"{overflowed} of {calls} calls of {agent} did not fit the model's context, so "
                    "nothing was measured; serve it with a longer one, or lower --max-tokens, and "
                    "play into another folder"
                )
        return None

    def summary(self, prices: Prices | None = None) -> dict[str, Any]:
        """{"counted", "agents": {agent: {…}}, "cost_usd", "unpriced", "prices"}, ready for JSON.

        "counted" says in words which calls are. Of an agent: the counts of calls (`failed_calls` in
        episodes that failed, `truncated` at max_tokens or where the context ended, `overflowed`
        because the prompt did not fit it, `empty` answers besides these, `uncounted` without token
        counts from the server), tokens, `models`, `seconds` from asking to the answer (of agents
        that are asked in parallel: to the last answer; retries and waits included) as total, mean,
        median, p95 and max, and `cost_usd`.
        A cost is None without a price table, where a model (listed in "unpriced") is not in it,
        and where tokens were not counted.
        """
        agents = {agent: _agent(self._calls[agent], prices) for agent in sorted(self._calls)}
        models = {model for each in self._calls.values() for model in each}
        priced = prices or {}
        return {
            "counted": COUNTED,
            "agents": agents,
            "cost_usd": _total([each["cost_usd"] for each in agents.values()]),
            "unpriced": sorted(models - priced.keys()) if prices is not None else [],
            "prices": {
                model: msgspec.to_builtins(priced[model])
                for model in sorted(models & priced.keys())
            },
        }


def _agent(models: Mapping[str, _Calls], prices: Prices | None) -> dict[str, Any]:
    counts = {name: sum(getattr(each, name) for each in models.values()) for name in _COUNTS}
    costs = [calls.cost((prices or {}).get(model)) for model, calls in models.items()]
    seconds = np.concatenate([np.frombuffer(calls.seconds) for calls in models.values()])
    return counts | {
        "models": sorted(models),
        "seconds": {
            "total": math.fsum(seconds),
            "mean": math.fsum(seconds) / len(seconds),
            "median": float(np.median(seconds)),
            "p95": float(np.quantile(seconds, 0.95)),
            "max": float(seconds.max()),
        },
        "cost_usd": _total(costs),
    }


def _total(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if costs and len(known) == len(costs) else None
