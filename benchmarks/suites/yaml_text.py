"""YAML in which no key stands twice."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """The value of a text. Raises `yaml.YAMLError`, too, for a key that stands twice in a mapping.

    PyYAML by itself would keep the last one.
    """
    return yaml.load(text, _Loader)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As its parent's, for keys that differ."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} stands twice; remove one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)
