"""Prompts are data: one TOML file per set, one table per role, placeholders like {question}.

name = "default"
version = 1
[solver]
system = "..."                     # optional
user = "{question}{history}"
history = "\\nEarlier: {draft}"     # rendered once per earlier round, concatenated
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from mas_envs.episodes.schema import Message
from mas_envs.errors import BadFile, UnknownName

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Placeholders replaced in one pass: a brace inside a value is never read again."""
    return _PLACEHOLDER.sub(lambda match: fields.get(match[1], match[0]), template)


class PromptSet:
    """The prompts of one environment; `id` (name, version, hash) is recorded in every episode."""

    def __init__(self, path: Path, roles: Iterable[str]) -> None:
        try:
            raw = path.read_bytes()
            tables = tomllib.loads(raw.decode())
        except OSError as error:
            raise BadFile(path, error.strerror or "cannot be read") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFile(path, f"not TOML ({error})") from None
        for role in roles:
            if not isinstance(tables.get(role), dict) or "user" not in tables[role]:
                raise BadFile(path, f"no [{role}] table with a 'user' text", fix="add it")
            for key in ("system", "user", "history"):
                if not isinstance(tables[role].get(key, ""), str):
                    raise BadFile(path, f"[{role}] {key} = {tables[role][key]!r}", fix="quote it")
        self.roles: dict[str, dict[str, str]] = {role: tables[role] for role in roles}
        digest = hashlib.sha256(raw).hexdigest()[:12]
        self.id = f"{tables.get('name', path.stem)}-v{tables.get('version', 0)}-{digest}"

    def messages(
        self, role: str, fields: Mapping[str, str], history: Iterable[Mapping[str, str]] = ()
    ) -> tuple[Message, ...]:
        """What that role is shown. `history` holds one mapping of fields per earlier round."""
        texts = self.roles[role]
        past = "".join(fill(texts.get("history", ""), entry) for entry in history)
        user = Message("user", fill(texts["user"], {**fields, "history": past}))
        return (Message("system", texts["system"]), user) if texts.get("system") else (user,)


def load_prompts(name: str | Path, folder: Path, roles: Iterable[str]) -> PromptSet:
    """A shipped set by name, or any TOML file by path. Raises `UnknownName` or `BadFile`."""
    shipped = {path.stem: path for path in folder.glob("*.toml")}
    if str(name) in shipped:
        return PromptSet(shipped[str(name)], roles)
    if str(name).endswith(".toml"):
        return PromptSet(Path(name), roles)
    raise UnknownName("prompt set", str(name), [*shipped, "FILE.toml"])
