"""Ids like `math-v0`: `register`, `make`, `spec`, `registry`, and plug-ins by entry point.

A class of your own needs no registration: `make("my_module:MyEnv")`. Another package adds
environments under ids of their own without touching this one:

    [project.entry-points."mas_envs.environments"]
    mine = "my_package.envs:register_all"      # a function that calls mas_envs.register(...)
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import pettingzoo

from mas_envs.by_name import by_name
from mas_envs.episodes.plain import plain
from mas_envs.errors import UnknownName, UserError
from mas_envs.tasks import TaskSet
from mas_envs.workflow import WorkflowEnv

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*-v\d+")
ENTRY_POINTS = "mas_envs.environments"


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What makes an environment again: `make(EnvSpec.from_json(text))`.

    `entry_point` is "module:Class"; `kwargs` are JSON values.
    """

    id: str
    entry_point: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as recorded in every episode: URLs without user and password."""
        return {"id": self.id, "entry_point": self.entry_point, "kwargs": _shown(self.kwargs)}

    def to_json(self) -> str:
        """The spec as JSON text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> EnvSpec:
        """The inverse of `to_json`. Raises `UserError`."""
        try:
            fields = json.loads(text)
            return EnvSpec(fields["id"], fields["entry_point"], dict(fields["kwargs"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"not an environment spec ({error!r}): {text[:80]!r}") from None


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    if isinstance(value, str) and "://" in value and "@" in value:
        from retrievers.http.connections import without_password  # here: it loads asyncio

        return without_password(value)
    return value


registry: dict[str, EnvSpec] = {}
_plugins_loaded = False


def register(id: str, entry_point: str, kwargs: Mapping[str, Any] | None = None) -> None:
    """Add an environment under an id like `name-v0`; also to PettingZoo's own registry, and to
    Gymnasium's as `mas_envs/name-v0`, seen by one agent (`mas_envs.adapters.gymnasium`).

    Raises `UserError` for a malformed id or one that is taken by another entry point.
    """
    if not _ID.fullmatch(id):
        raise UserError(f"environment id {id!r}; write it like 'name-v0'")
    if not isinstance(entry_point, str) or ":" not in entry_point:
        raise UserError(f"entry point {entry_point!r} of {id!r}; write it as 'module:Class'")
    new = EnvSpec(id, entry_point, dict(kwargs or {}))
    if id in registry:
        if registry[id] != new:
            raise UserError(f"environment id {id!r} is taken by {registry[id].entry_point}")
        return
    registry[id] = new
    if id not in pettingzoo.aec_registry:
        pettingzoo.register("aec", id, _PettingZooMaker(id))
    if (single := f"mas_envs/{id}") not in gymnasium.registry:
        view = "mas_envs.adapters.gymnasium:SingleAgent"
        gymnasium.register(single, view, kwargs={"env": id})


@dataclass(frozen=True, slots=True)
class _PettingZooMaker:
    id: str

    def __call__(self, **kwargs: Any) -> WorkflowEnv:
        return make(self.id, **kwargs)


def _load_plugins() -> None:
    from importlib import metadata  # here, since it would be a tenth of `import mas_envs`

    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()()
        except Exception as error:
            plugin = f"{point.name} = {point.value!r}"
            raise UserError(f"environment plug-in {plugin} failed: {error!r}; repair it") from error


def all_specs() -> list[EnvSpec]:
    """Every registered environment, plug-ins included, by id."""
    _load_plugins()
    return [registry[id] for id in sorted(registry)]


def spec(id: str) -> EnvSpec:
    """The spec registered under an id. Raises `UnknownName` naming the nearest one."""
    if id not in registry:
        _load_plugins()
    if id not in registry:
        raise UnknownName("environment", id, registry, fix="name a class of yours as "
                          "'module:Class', or register it (mas_envs.register, or the entry points "
                          f"{ENTRY_POINTS!r})")  # fmt: skip
    return registry[id]


def keywords_of(creator: Any) -> list[str] | None:
    """The keywords an environment class takes; those of its bases where it passes **these on.

    None when it is no class.
    """
    if not isinstance(creator, type):
        return None
    names: list[str] = []
    for cls in creator.__mro__:
        if "__init__" in vars(cls) and issubclass(cls, WorkflowEnv):
            parameters = inspect.signature(cls.__init__).parameters.values()
            names += [
                p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            ]
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return [name for name in dict.fromkeys(names) if name != "self"]


COMMON = keywords_of(WorkflowEnv) or []
"""The arguments of every environment."""


def _spec_of(id: str | EnvSpec) -> EnvSpec:
    if isinstance(id, EnvSpec):
        return id
    if not isinstance(id, str):
        raise UserError(f"environment {id!r:.80}; give an id, 'module:Class' or an EnvSpec")
    return EnvSpec(id, entry_point=id) if ":" in id else spec(id)


def _creator(base: EnvSpec) -> Any:
    try:
        return by_name(base.entry_point)
    except UserError as error:
        if base.id == base.entry_point:
            raise UserError(f"environment {error}") from error
        raise UserError(f"{base.id}: entry point {error}") from error


def _check_call(base: EnvSpec, creator: Any, kwargs: Mapping[str, Any]) -> None:
    """Raises `UserError` where the creator cannot be called so: an argument is missing, say."""
    try:
        inspect.signature(creator).bind(**kwargs)
    except TypeError as error:
        raise UserError(f"{base.id}: {error}") from None
    except ValueError:  # a builtin without a signature
        pass


def make(id: str | EnvSpec, **kwargs: Any) -> WorkflowEnv:
    """An environment by id, class ("module:Class") or spec; keyword arguments override the spec's.

    The result's `spec` can be serialised and makes the same environment again. Raises
    `UnknownName` for the id, `UserError` for arguments the environment does not take.
    """
    base = _spec_of(id)
    creator = _creator(base)
    merged = {**base.kwargs, **kwargs}
    known = keywords_of(creator)
    if known is not None and (unknown := [key for key in merged if key not in known]):
        fix = ""
        if unknown[0] in COMMON:
            fix = f"let {creator.__name__}.__init__ take **common and pass it to super().__init__"
        raise UnknownName("argument", unknown[0], known, where=base.id, fix=fix)
    try:
        recorded = {
            key: plain(value.spec if isinstance(value, TaskSet) else value, f"{base.id}: {key}")
            for key, value in merged.items()
            if key != "render_mode"
        }
    except TypeError as error:
        raise UserError(
            f"{error} (an environment's arguments are recorded in each episode)"
        ) from None
    _check_call(base, creator, merged)
    env = creator(**merged)
    if not isinstance(env, WorkflowEnv):
        raise UserError(f"{base.entry_point} made a {type(env).__name__}, not a WorkflowEnv")
    if not hasattr(env, "_current"):
        raise UserError(f"{base.entry_point} is not set up; let its __init__ take **common and "
                        "call super().__init__(**common)")  # fmt: skip
    env.spec = replace(base, kwargs=recorded)
    return env
