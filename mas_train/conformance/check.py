"""Running a function, ours or another trainer's, against the golden cases."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mas_envs.errors import UnknownName, UserError
from mas_train.conformance.cases import KINDS, Case, cases
from mas_train.conformance.report import Report, Result, compare

TOLERANCE = 1e-5
LABELS = {"prompt", "agent", "trajectory", "turn", "row", "old_log_probs", "old_values"}
"""Inputs that a function may do without: whether it should is what the numbers show."""
NEUTRAL = {"dual_clip": None, "clip": None, "clip_low": 1.0, "floor": 0.0}
"""Values that switch an option off: a function without the option is right without it."""
FRAMEWORKS = ("torch", "numpy")
STEP = 1e-5
"""Of finite differences, in nats; their own error is about 1e-9."""


def check_advantages(
    function: Callable[..., Any], preset: str | None = None, tolerance: float = TOLERANCE
) -> Report:
    """Run `function(rewards, prompt, agent, trajectory, …) -> [N]` against the golden cases.

    See `check`. The deviation of the presets is the sample's plus 1e-6; a trainer that adds 1e-4 is
    told so by errors of 1e-4 and more, and passes at a tolerance of 5e-4.
    """
    return check("advantages", function, preset, tolerance=tolerance)


def check_loss(
    function: Callable[..., Any],
    name: str | None = None,
    tolerance: float = TOLERANCE,
    framework: str = "torch",
) -> Report:
    """Run `function(log_probs, old_log_probs, advantages, …) -> [K]` against the golden cases.

    The loss per token, and the gradient of its sum weighted with `Case.token_weights`. See `check`.
    """
    return check("loss", function, name, tolerance=tolerance, framework=framework)


def check(
    kind: str,
    function: Callable[..., Any],
    name: str | None = None,
    *,
    tolerance: float = TOLERANCE,
    framework: str = "torch",
) -> Report:
    """Run `function` against the golden cases of a kind (`KINDS`) and of the method `name`.

    Inputs and options are passed by keyword, as far as the function takes them; a case with one
    that it does not take is skipped, unless it is a label or the value switches the option off
    (`NEUTRAL`). `name` None means all methods, for a function that takes the kind's selector
    (`preset`, `name`, `estimator`, `aggregation`).

    Losses, KL penalties and corrections get float64 tensors and return tensors; their gradient is
    torch's. With `framework="numpy"` they get and return arrays; the gradient is checked by finite
    differences, and not at all where the loss has a detached factor. All others get arrays.

    An exception of the function is a failed case. Raises `UnknownName`, and `UserError` where the
    method must be named or torch is missing.
    """
    chosen = cases(kind, name)
    takes = _parameters(function)
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS)
    names = sorted({case.name for case in chosen})
    if name is None and len(names) > 1 and not takes(KINDS[kind].selector):
        raise UserError(
            f"{kind}: say which method the function is ({', '.join(names)}), or let it take the "
            f"keyword {KINDS[kind].selector!r}"
        )
    tensors = KINDS[kind].tensors and framework == "torch"
    if tensors:
        try:
            import torch  # noqa: F401
        except ImportError:
            raise UserError(
                f"{kind}: tensors need torch, which is not installed; for a function on arrays "
                "say framework='numpy' (--numpy)"
            ) from None
    return Report([_run(case, function, takes, tensors, tolerance) for case in chosen])


def _parameters(function: Callable[..., Any]) -> Callable[[str], bool]:
    """Says whether a function takes a keyword."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UserError(f"{function!r} is no function whose arguments can be read") from None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return lambda name: True
    named = {
        one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    return named.__contains__


def _run(
    case: Case,
    function: Callable[..., Any],
    takes: Callable[[str], bool],
    tensors: bool,
    tolerance: float,
) -> Result:
    given = {**case.inputs, **case.options}
    off = [name for name, value in NEUTRAL.items() if case.options.get(name, value) == value]
    needed = [name for name in case.options if name not in off]
    needed += [name for name in case.inputs if name not in LABELS]
    if missing := [name for name in needed if not takes(name)]:
        return Result(case, "skipped", note=f"the function takes no {', '.join(missing)}")
    given = copy.deepcopy({name: value for name, value in given.items() if takes(name)})
    if takes(KINDS[case.kind].selector):
        given[KINDS[case.kind].selector] = case.name
    try:
        found, note = (_with_torch if tensors else _with_numpy)(case, function, given)
    except Exception as raised:
        text = " ".join(f"{type(raised).__name__}: {raised}".split())
        return Result(case, "failed", note=f"raised {text}")
    if "state" in case.expected:
        found["state"] = given["state"]
    largest = 0.0
    for name, expected in case.expected.items():
        if name not in found:
            continue
        right, value = expected, found[name]
        if isinstance(expected, dict):
            right, value = list(expected.values()), [value.get(key, np.nan) for key in expected]
        slack = max(tolerance, 1e-6) if name == "gradient" and not tensors else tolerance
        error, wrong = compare(value, right, case, slack)
        if wrong:
            where = "" if name == KINDS[case.kind].returns[0] else f"{name}: "
            return Result(case, "failed", error, where + wrong)
        largest = max(largest, error)
    return Result(case, "passed", largest, note)


def _results(case: Case, value: Any) -> dict[str, Any]:
    names = KINDS[case.kind].returns
    if len(names) == 1:
        return {names[0]: value}
    if not isinstance(value, tuple | list) or len(value) != len(names):
        raise TypeError(f"the result is no tuple ({', '.join(names)})")
    return dict(zip(names, value, strict=True))


def _with_numpy(
    case: Case, function: Callable[..., Any], given: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    found = _results(case, function(**given))
    variable = KINDS[case.kind].gradient
    if variable is None:
        return found, ""
    if case.detached:
        return found, "gradient not checked: a factor is detached; give tensors"
    weights = np.asarray(case.token_weights)
    if np.shape(next(iter(found.values()))) != weights.shape:
        return found, ""  # wrong already
    gradient = np.zeros(len(weights))
    for k in range(len(gradient)):
        ends = []
        for step in (STEP, -STEP):
            moved = {**given, variable: given[variable].copy()}
            moved[variable][k] += step
            ends.append(float(np.asarray(function(**moved)) @ weights))
        gradient[k] = (ends[0] - ends[1]) / (2 * STEP)
    return {**found, "gradient": gradient}, ""


def _with_torch(
    case: Case, function: Callable[..., Any], given: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    import torch

    for name, value in given.items():
        if isinstance(value, np.ndarray):
            given[name] = torch.from_numpy(value)
    variable = KINDS[case.kind].gradient
    if variable is not None:
        given[variable].requires_grad_()
    value = function(**given)
    if not isinstance(value, torch.Tensor):
        raise TypeError("the result is no tensor; a function on arrays needs framework='numpy'")
    found = _results(case, value.detach().cpu().numpy())
    if variable is not None:
        if not value.requires_grad:
            raise ValueError("the result carries no gradient")
        weights = torch.tensor(case.token_weights, dtype=value.dtype, device=value.device)
        (gradient,) = torch.autograd.grad((weights * value).sum(), given[variable])
        found["gradient"] = gradient.cpu().numpy()
    return found, ""
