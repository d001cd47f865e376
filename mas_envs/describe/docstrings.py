"""What the docstring of an environment says in words: prose, and sections of named entries.

    Actions:
        solver: what is read of its answer,
            and what counts as invalid.

The titles are `TITLES`, each entry is `name: text` indented by four, deeper lines continue it. A
class inherits the entries of its bases. It need not have any: then its page has only what the code
tells.
"""

from __future__ import annotations

import inspect

from mas_envs.registration import keywords_of
from mas_envs.workflow import WorkflowEnv

TITLES = ("Observations", "Actions", "Rewards", "Info", "Arguments", "Versions")
Sections = dict[str, dict[str, str]]
"""Title → name → text, in the order of the docstring."""


def read_docstring(text: str) -> tuple[str, Sections]:
    """The prose of a docstring, and its sections with the lines of each entry joined."""
    prose: list[str] = []
    sections: Sections = {}
    entries: dict[str, str] | None = None
    name = ""
    for line in inspect.cleandoc(text).splitlines():
        words = line.strip()
        if line.endswith(":") and line[:-1] in TITLES:
            entries, name = sections.setdefault(line[:-1], {}), ""
        elif entries is None or (words and not line.startswith(" ")):
            entries = None
            prose.append(line)
        elif words:
            first, colon, rest = words.partition(": ")
            if colon and not line.startswith(" " * 5):  # a deeper line continues its entry
                name, words = first, rest
            entries[name] = f"{entries.get(name, '')} {words}".strip()
    return "\n".join(prose).strip(), sections


def classes_of(cls: type, common: bool = True) -> list[type]:
    """The environment classes of the MRO; `common` includes the base of all."""
    classes = [base for base in cls.__mro__ if issubclass(base, WorkflowEnv)]
    return classes if common else classes[:-1]


def sections_of(cls: type, common: bool = True) -> Sections:
    """The sections of an environment class and of its bases."""
    merged: Sections = {}
    for base in classes_of(cls, common):
        for title, entries in read_docstring(vars(base).get("__doc__") or "")[1].items():
            merged[title] = merged.get(title, {}) | {
                name: text for name, text in entries.items() if name not in merged.get(title, {})
            }
    return merged


def parameters(cls: type, common: bool = True) -> dict[str, inspect.Parameter]:
    """The arguments of an environment class and of its bases, by name."""
    found: dict[str, inspect.Parameter] = {}
    for base in classes_of(cls, common):
        if "__init__" in vars(base):
            found = {**inspect.signature(base).parameters, **found}
    return {name: found[name] for name in keywords_of(cls) or () if name in found}
