"""Prompts are data: one TOML file per set, one table per role, placeholders like {question}.

name = "default"
version = 1
[solver]
system = "..."                     # optional, shown as it stands
user = "{question}{history}"
intro = "\\nWhat happened so far:"  # optional: stands before the history, if there is any
history = "\\nEarlier: {draft}"     # rendered once per earlier round, concatenated
[solver_1]                          # optional: one agent's own texts instead of its role's

A placeholder that the workflow does not fill is shown as it stands.
All that we ship stand in `mas_envs/prompt_sets/`, a folder per environment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from mas_envs.episodes.schema import Message
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.protocol import role_of

PROMPT_SETS = Path(__file__).parent / "prompt_sets"

TEXTS = ("system", "user", "intro", "history")

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Placeholders replaced in one pass: a brace inside a value is never read again."""
    return _PLACEHOLDER.sub(lambda match: fields.get(match[1], match[0]), template)


class PromptSet:
    """The prompts of one environment: `texts[agent or role]` → system, user, intro, history.

    `id` (name, version, hash) is recorded in every episode.
    """

    def __init__(self, path: Path, agents: Iterable[str]) -> None:
        """`agents` are agent ids or roles; the file must have a table for each or for its role."""
        import tomllib  # here: `import mas_envs` stays light

        try:
            raw = path.read_bytes()
            tables = tomllib.loads(raw.decode())
        except OSError as error:
            raise BadFile(path, error.strerror or "cannot be read") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFile(path, f"not TOML ({error})") from None
        self.texts: dict[str, dict[str, str]] = {}
        for agent in agents:
            name = agent if agent in tables else role_of(agent)
            table = tables.get(name)
            if not isinstance(table, dict) or "user" not in table:
                there = ", ".join(f"[{key}]" for key in tables if isinstance(tables[key], dict))
                problem = f"no [{name}] table with a 'user' text"
                raise BadFile(path, problem, fix=f"add it; the file has {there or 'no table'}")
            for key, text in table.items():
                if key not in TEXTS:
                    raise BadFile(path, f"[{name}] has {key!r}", fix=f"known: {', '.join(TEXTS)}")
                if not isinstance(text, str):
                    raise BadFile(path, f"[{name}] {key} = {text!r:.80}", fix="quote it")
            self.texts[agent] = table
        digest = hashlib.sha256(raw).hexdigest()[:12]
        self.id = f"{tables.get('name', path.stem)}-v{tables.get('version', 0)}-{digest}"

    def messages(
        self, agent: str, fields: Mapping[str, str], history: Iterable[Mapping[str, str]] = ()
    ) -> tuple[Message, ...]:
        """What that agent is shown. `history` holds one mapping of fields per earlier round.

        Raises `UnknownName` when the set was not loaded for such an agent.
        """
        if agent not in self.texts:
            raise UnknownName("agent", str(agent), self.texts, where=f"prompts {self.id}")
        texts = self.texts[agent]
        past = "".join(fill(texts.get("history", ""), entry) for entry in history)
        past = fill(texts.get("intro", ""), fields) * bool(past) + past
        user = Message("user", fill(texts["user"], {**fields, "history": past}))
        return (Message("system", texts["system"]), user) if texts.get("system") else (user,)


def load_prompts(
    choice: str | Path | Mapping[str, str | Path], default: Path, agents: Iterable[str]
) -> PromptSet:
    """The prompts of `agents`: a shipped set by name, or any TOML file by path.

    Shipped sets are the TOML files beside `default`. A mapping {role or agent id: set} (or the same
    as text, "solver=FILE.toml,verifier=default") takes that agent's texts from another set; agents
    it does not name keep the default's. Raises `UnknownName`, `UserError` or `BadFile`.
    """
    agents = list(agents)
    if isinstance(choice, str) and "=" in choice and not Path(choice).is_file():
        choice = _pairs(choice)
    if not isinstance(choice, Mapping):
        return PromptSet(_path(choice, default.parent), agents)
    prompts = PromptSet(default, agents)
    # By name, so that their order changes nothing; a role's entry comes before its agents' own.
    for name, own in sorted(choice.items(), key=lambda entry: str(entry[0])):
        named = [agent for agent in agents if name in (agent, role_of(agent))]
        if not named:
            known = {*agents, *map(role_of, agents)}
            raise UnknownName("agent", str(name), known, where="prompts")
        other = PromptSet(_path(own, default.parent), named)
        prompts.texts |= other.texts
        prompts.id += f"+{name}={other.id}"
    return prompts


def _pairs(text: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in text.split(","):
        name, equals, own = (word.strip() for word in part.partition("="))
        if not equals or name in chosen:
            raise UserError(f"prompts {text!r}; write role=SET once for each, or one set for all")
        chosen[name] = own
    return chosen


def _path(choice: str | Path, folder: Path) -> Path:
    if not isinstance(choice, str | Path):
        raise UserError(f"prompts {choice!r:.80}; give the name of a set, a TOML file, or a "
                        "mapping of agents to them")  # fmt: skip
    shipped = {path.stem: path for path in folder.glob("*.toml")}
    if str(choice) in shipped:
        return shipped[str(choice)]
    if str(choice).endswith(".toml"):
        return Path(choice)
    raise UnknownName("prompt set", str(choice), [*shipped, "FILE.toml"])
