"""The specification of a suite, and the files that hold them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.proposer_solver import ProposerSolverEnv
from mas_envs.workflow import WorkflowEnv

SUITES_FILE = Path(__file__).parent / "suites.yaml"
YAML = (".yaml", ".yml")


class Hub(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset on the Hugging Face hub and its one file, as a name or a glob.

    `revision` None means unpinned: nobody has verified one.
    """

    id: str
    file: str
    revision: str | None = None


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The very copy that the suite's hash was computed from: a file in a GitHub repository."""

    repo: str
    commit: str
    path: str
    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.repo}@{self.commit[:12]} {self.path}"


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The environment that asks the questions: `mas_envs.make(id, **args)`.

    `needs` are arguments that have no sensible default here, so that --env-arg must give them.
    """

    id: str = "math-v0"
    args: dict[str, Any] = {}
    needs: tuple[str, ...] = ()


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One benchmark; the fields are explained at the top of `suites.yaml`."""

    name: str = ""
    title: str = ""
    rows: int | None = None
    licence: str = "not stated"
    sha256: str | None = None
    origin: Origin | None = None
    hub: Hub | None = None
    data: str | None = None
    question: tuple[str, ...] = ("problem", "question")
    cut: str | None = None
    answer: tuple[str, ...] = ("answer",)
    boxed: str | None = None
    gold: Literal["integer", "latex"] = "latex"
    unit: str | None = None
    errata: dict[str, str] = {}
    mistakes: dict[str, tuple[str, str]] = {}
    meta: tuple[str, ...] = ()
    tasks: dict[str, Any] | None = None
    grader: Literal["math", "qa"] = "math"
    env: Environment = Environment()

    @property
    def source(self) -> str:
        """Where the problems come from, in words; says "unpinned" where no revision is known."""
        if self.tasks is not None:
            return "embedded"
        if self.data is not None:
            return self.data
        hub = self.hub and f"{self.hub.id}@{self.hub.revision or 'unpinned'}"
        return hub or (str(self.origin) if self.origin else "unknown")


def read_suites(path: str | Path) -> dict[str, Suite]:
    """The suites of a YAML file by name. Raises `BadFile` naming the suite, the key and value.

    `data` of a suite is relative to the file's folder.
    """
    import yaml

    from mas_envs.yaml_tree import read_tree

    try:
        content = read_tree(Path(path).read_text("utf-8"))
    except OSError as error:
        raise BadFile(path, f"cannot read the suites: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise BadFile(path, f"not YAML: {getattr(error, 'problem', error)}", line) from None
    if not isinstance(content, dict):
        raise BadFile(path, "no suites; write `name: {data: questions.jsonl, answer: [gold]}`")
    return {str(name): _suite(path, str(name), fields) for name, fields in content.items()}


def _suite(path: str | Path, name: str, fields: Any) -> Suite:
    if not name or name in (".", "..") or {"/", "\\", "\0"} & set(name):
        raise BadFile(path, f"suite {name!r}", fix="a suite's name must do as the name of a file")
    try:
        found = msgspec.convert(fields, Suite)
        re.compile(found.cut or "")
    except msgspec.ValidationError as error:
        raise BadFile(path, f"suite {name!r}: {error}", fix=_fix(str(error))) from None
    except re.error as error:
        problem = f"cut {found.cut!r} is no regular expression ({error})"
        raise BadFile(path, f"suite {name!r}: {problem}") from None
    data = None if found.data is None else str(Path(path).parent / found.data)
    return msgspec.structs.replace(found, name=name, title=found.title or name, data=data)


def _fix(error: str) -> str:
    """What a field may be."""
    if "unknown field" in error:
        return f"the keys are {', '.join(Suite.__struct_fields__[1:])}"
    for key, kind in get_type_hints(Suite).items():
        if get_origin(kind) is Literal and f"`$.{key}`" in error:
            return f"{key} is {' or '.join(get_args(kind))}"
    return ""


@cache
def suites() -> dict[str, Suite]:
    """The suites that come with mas-gym, by name."""
    return read_suites(SUITES_FILE)


def suite(name: str) -> Suite:
    """One suite: a name of `suites`, or FILE.yaml#NAME, or FILE.yaml that holds a single one.

    Raises `UnknownName` suggesting the nearest, and `BadFile`.
    """
    path, _, chosen = name.partition("#")
    if not path.endswith(YAML):
        if name not in suites():
            raise UnknownName("suite", name, [*suites(), "FILE.yaml"])
        return suites()[name]
    own = read_suites(path)
    if not chosen and len(own) == 1:
        chosen = next(iter(own))
    if not chosen:
        choices = ", ".join(f"{path}#{one}" for one in own)
        raise BadFile(path, f"holds {len(own)} suites", fix=f"say which: {choices}")
    if chosen not in own:
        raise UnknownName("suite", chosen, own, where=path)
    found = own[chosen]
    if found.data is None and found.tasks is None and found.hub is None and found.origin is None:
        fix = "give data: FILE.jsonl, relative to this file"
        raise BadFile(path, f"suite {chosen!r} says not where its questions are", fix=fix)
    return found


def check_blind(env: WorkflowEnv) -> None:
    """Raises `UserError` for an environment whose agents are shown the gold answers."""
    if isinstance(env, ProposerSolverEnv):
        raise UserError(
            "its proposer is shown the gold answers, so a score would measure nothing; play the "
            "suite with the solvers alone, --env vote-v0 or math-single-v0"
        )
