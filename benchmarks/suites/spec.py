"""The specification of a suite and the file that holds them all."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.proposer_solver import ProposerSolverEnv
from mas_envs.workflow import WorkflowEnv

SUITES_FILE = Path(__file__).parent / "suites.yaml"


class Hub(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset on the hub. `revision` None means unpinned: nobody has verified one."""

    id: str
    revision: str | None = None


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The environment that asks the questions: `mas_envs.make(id, **args)`."""

    id: str = "math-v0"
    args: dict[str, Any] = {}


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One benchmark; the fields are explained at the top of `suites.yaml`."""

    name: str = ""
    title: str
    rows: int
    licence: str
    sha256: str | None = None
    origin: str | None = None
    hub: Hub | None = None
    question: tuple[str, ...] = ("problem", "question")
    answer: tuple[str, ...] = ("answer",)
    boxed: str | None = None
    gold: Literal["integer", "latex"] = "latex"
    unit: str | None = None
    errata: dict[str, str] = {}
    meta: tuple[str, ...] = ()
    tasks: dict[str, Any] | None = None
    grader: Literal["math", "qa"] = "math"
    env: Environment = Environment()

    @property
    def source(self) -> str:
        """Where the problems come from, in words; says "unpinned" where no revision is known."""
        if self.tasks is not None:
            return "embedded"
        if self.hub is None:
            return self.origin or "unknown"
        return f"{self.hub.id}@{self.hub.revision or 'unpinned'}"


def read_suites(path: str | Path) -> dict[str, Suite]:
    """The suites of a YAML file by name. Raises `BadFile` naming the suite, the key and value."""
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise BadFile(path, f"cannot read the suites: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise BadFile(path, f"not YAML: {getattr(error, 'problem', error)}", line) from None
    if not isinstance(content, dict):
        raise BadFile(path, "no suites; write `name: {title: …, rows: …, licence: …}`")
    found = {}
    for name, fields in content.items():
        try:
            found[str(name)] = msgspec.structs.replace(
                msgspec.convert(fields, Suite), name=str(name)
            )
        except msgspec.ValidationError as error:
            raise BadFile(path, f"suite {name!r}: {error}") from None
    return found


@cache
def suites() -> dict[str, Suite]:
    """The suites that come with mas-gym, by name."""
    return read_suites(SUITES_FILE)


def suite(name: str) -> Suite:
    """One suite. Raises `UnknownName` suggesting the nearest."""
    if name not in suites():
        raise UnknownName("suite", name, suites())
    return suites()[name]


def check_blind(env: WorkflowEnv) -> None:
    """Raises `UserError` for an environment whose agents are shown the gold answers."""
    if isinstance(env, ProposerSolverEnv):
        raise UserError(
            "its proposer is shown the gold answers, so a score would measure nothing; play the "
            "suite with the solvers alone, --env vote-v0 or math-single-v0"
        )
