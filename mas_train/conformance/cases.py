"""The golden cases, read from the JSON files beside this one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mas_envs.errors import UnknownName

FOLDER = Path(__file__).parent / "golden"


class Kind(NamedTuple):
    """What functions of a kind are given and what they return.

    `selector`: the keyword that names the method, for a function that knows several. `returns`: the
    names of its results, in order. `gradient`: the input its gradient is checked for.
    """

    selector: str
    returns: tuple[str, ...]
    gradient: str | None = None
    tensors: bool = False


# fmt: off
KINDS = {  # [N] rows, [K] tokens
    "advantages":     Kind("preset", ("advantages",)),                              # [N]
    "gae":            Kind("preset", ("advantages", "returns")),                    # [K], [K]
    "counterfactual": Kind("preset", ("advantages",)),                              # [N]
    "loss":           Kind("name", ("loss",), gradient="log_probs", tensors=True),  # [K]
    "kl":             Kind("estimator", ("penalty",), gradient="log_probs", tensors=True),  # [K]
    "kl_reward":      Kind("estimator", ("penalty",)),                              # [N]
    "correction":     Kind("name", ("weights",), tensors=True),                     # [K]
    "value_loss":     Kind("name", ("loss",), gradient="values", tensors=True),     # [K]
    "weights":        Kind("aggregation", ("weights",)),                            # [N]
    "total":          Kind("aggregation", ("loss",)),                               # a number
    "overlong":       Kind("name", ("penalty",)),                                   # [N]
}
# fmt: on


@dataclass(frozen=True)
class Case:
    """One golden case.

    `name` is the method (a preset, a loss, an aggregation …), `title` what the case is about,
    `source` where its formula stands. `inputs` are arrays (float64 unless said otherwise; NaN where
    a reward is unknown) and `options` numbers, both by keyword. `expected` has an array for each
    result and, of losses, `gradient`: that of Σ `token_weights` × loss with respect to the first
    input. `detached`: the loss has a factor that carries no gradient, so that finite differences
    would not show the right one.
    """

    kind: str
    name: str
    title: str
    source: str
    inputs: dict[str, Any]
    options: dict[str, Any]
    expected: dict[str, Any]
    token_weights: Any = None
    detached: bool = False
    dtypes: dict[str, str] = field(default_factory=dict)


def cases(kind: str | None = None, name: str | None = None) -> tuple[Case, ...]:
    """The golden cases of a kind (None: of all), and of one method. Raises `UnknownName`."""
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind of golden case", kind, KINDS)
    found = [case for one in KINDS if kind in (None, one) for case in _read(one)]
    if name is not None and name not in (names := {case.name for case in found}):
        raise UnknownName(f"method among the golden cases of {kind or 'any kind'}", name, names)
    return tuple(case for case in found if name in (None, case.name))


@cache
def _read(kind: str) -> tuple[Case, ...]:
    written = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    return tuple(_case({"kind": kind, **entry}) for entry in written)


def _case(entry: dict[str, Any]) -> Case:
    dtypes = entry.get("dtypes", {})
    arrays = {name: _array(value, dtypes.get(name)) for name, value in entry["inputs"].items()}
    return Case(**{**entry, "inputs": arrays})


def _array(value: Any, dtype: str | None = None) -> Any:
    """A list as an array, null as NaN; a list of lists as a list of arrays; the rest as it is."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return [_array(part) for part in value]
    if None in value:
        value = [np.nan if one is None else one for one in value]
    return np.array(value, dtype)
