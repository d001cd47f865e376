"""Scripts to put in an agent's place: `mas-bench credit … --replace scripted:approve`."""

from __future__ import annotations

from collections.abc import Callable

from mas_envs.policies.base import Request


def approve(request: Request) -> str:
    """A verifier of math-v0 that waves everything through."""
    return "<verify>approve</verify>"


def reject(request: Request) -> str:
    """A verifier of math-v0 that is never content."""
    return "<verify>reject</verify>"


def yes(request: Request) -> str:
    """A verifier of search-v0 to which anything suffices."""
    return "<verify>yes</verify>"


def no(request: Request) -> str:
    """A verifier of search-v0 to which nothing suffices."""
    return "<verify>no</verify>"


def silent(request: Request) -> str:
    """Anybody, saying nothing: an invalid action each time."""
    return ""


REFERENCES: dict[str, Callable[[Request], str]] = {
    function.__name__: function for function in (approve, reject, yes, no, silent)
}


def target(name: str) -> str:
    """`scripted:approve` and the like as the target that `benchmarks.policies.team` reads."""
    script = name.removeprefix("scripted:")
    if name.startswith("scripted:") and script in REFERENCES:
        return f"scripted:{__name__}:{script}"
    return name
