"""Reading a configuration: YAML, overrides of single keys, errors that name the key."""

from __future__ import annotations

import difflib
import re
import types
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from mas_envs.errors import BadFile, UserError
from mas_envs.yaml_tree import MAX_BYTES, read_tree
from mas_train.config.whole import SCHEMA, Config


class Misconfigured(UserError):
    """A mistake in a configuration that shows only beside what it names. Names the key."""


def load(path: str | Path, overrides: typing.Sequence[str] = ()) -> Config:
    """Read, override (`key.path=value`, value in YAML) and validate.

    Raises `BadFile` or `UserError`, naming every wrong key, its value and the nearest valid key.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise BadFile(path, f"is larger than {MAX_BYTES:,} bytes", fix="give a YAML file")
        tree = read_tree(content.decode("utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise BadFile(path, f"not YAML ({error})", fix="give a YAML file in UTF-8") from None
        problem = getattr(error, "strerror", None) or str(error)  # a name with a NUL has none
        raise BadFile(path, problem, fix="give a YAML file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise BadFile(path, f"not YAML ({problem})", mark.line + 1 if mark else None) from None
    if not isinstance(tree, dict):
        held = "nothing" if tree is None else f"a {type(tree).__name__}"
        raise BadFile(path, f"holds {held}, not a mapping of sections", fix="see mas-train recipes")
    return resolve(tree, overrides, where=str(path))


def resolve(
    tree: dict[str, Any], overrides: typing.Sequence[str] = (), where: str = "config"
) -> Config:
    """A validated `Config` from plain values. Raises `UserError`."""
    tree = dict(tree)
    for override in overrides:
        _override(tree, override)
    for section in ("agents", "models"):  # --set models.b=null takes one away
        if isinstance(named := tree.get(section), dict):
            tree[section] = {name: one for name, one in named.items() if one is not None}
    schema = tree.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise UserError(
            f"{where}: schema: {schema!r} is not {SCHEMA}; this release reads schema {SCHEMA} only"
        )
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError("\n".join(_explain(problem, where) for problem in error.errors())) from None


_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
"""YAML 1.1 reads 3e-6 as a string; people mean the number."""


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"--set {override!r}; write it as key.path=value")
    try:
        value = read_tree(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(
            f"--set {override!r}: {text!r} is not a YAML value ({problem}); quote it for the shell"
        ) from None
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    for key in keys[:-1]:
        branch = tree.get(key, {})
        if not isinstance(branch, dict):
            raise UserError(f"--set {override!r}: {key!r} is {branch!r}, not a section")
        # Copied: the caller's tree stays as it is.
        tree[key] = tree = dict(branch)
    tree[keys[-1]] = value


def _explain(problem: Any, where: str) -> str:
    """One line: file, key, value, and the nearest valid key for an unknown one."""
    # What pydantic adds for a key that is no string, and for each of the types of a union.
    location = [str(p) for p in problem["loc"] if p not in ("[key]", "str", "dict[str,str]")]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(Config, location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"valid keys: {', '.join(known)}"
        return f"{where}: unknown key {key!r}; {hint}"
    if problem["type"] == "missing":
        return f"{where}: {key}: is missing; add it"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("dict_type", "model_type", "model_attributes_type"):
        message = "must be a section: a mapping of keys to values"
    value = problem["input"]
    shown = "" if isinstance(value, dict | BaseModel) else f" (got {value!r})"
    return f"{where}: {key + ': ' if key else ''}{message}{shown}"


def _keys_at(section: Any, location: list[str]) -> list[str]:
    """The valid keys of the section that `location` leads to; [] where any key is valid."""
    for part in location:
        if isinstance(section, type) and issubclass(section, BaseModel):
            section = section.model_fields[part].annotation
        else:
            section = typing.get_args(section)[1]  # dict[str, Section]
        if typing.get_origin(section) in (types.UnionType, typing.Union):
            section = next(a for a in typing.get_args(section) if a is not type(None))
    if isinstance(section, type) and issubclass(section, BaseModel):
        return [field.alias or name for name, field in section.model_fields.items()]
    return []
