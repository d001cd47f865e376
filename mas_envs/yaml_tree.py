"""YAML as a tree of plain values: nothing in it twice, shared, endless, or not to be written."""

from __future__ import annotations

from typing import Any

import yaml

MAX_BYTES = 2**20
"""Of a configuration; a longer file is something else."""
MAX_VALUES = 100_000
"""That the aliases of a file may expand to."""


def read_tree(text: str) -> Any:
    """The value of a YAML text, every alias a copy of its own: an override of one means no other.

    Raises `yaml.YAMLError`, too, for a key that stands twice in one mapping (YAML would keep the
    last), an alias within itself, more than `MAX_VALUES` values, deep nesting or a NUL character.
    """
    try:
        return _copied(yaml.load(text, _Loader), [0], frozenset())
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except ValueError as error:  # a date such as 2026-13-45
        raise yaml.YAMLError(str(error)) from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As its parent's; what a merge (`<<`) brings may be said again."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} stands twice; remove one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _copied(value: Any, count: list[int], above: frozenset[int]) -> Any:
    count[0] += 1
    if count[0] > MAX_VALUES:
        raise yaml.YAMLError(f"it has more than {MAX_VALUES:,} values")
    if isinstance(value, str) and "\0" in value:
        raise yaml.YAMLError("it has a NUL character")
    if not isinstance(value, dict | list | set | tuple):
        return value
    if id(value) in above:
        raise yaml.YAMLError("an alias stands within what it stands for")
    above |= {id(value)}
    if isinstance(value, dict):
        return {
            _copied(key, count, above): _copied(part, count, above) for key, part in value.items()
        }
    return [_copied(part, count, above) for part in value]
