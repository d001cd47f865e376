"""Markdown about environments: facts from the made environment, words from its docstrings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mas_envs.describe.docstrings import TITLES, classes_of, parameters, read_docstring, sections_of
from mas_envs.describe.examples import play_example
from mas_envs.episodes.text import conversation_text
from mas_envs.errors import BadFile
from mas_envs.prompts import TEXTS, PromptSet
from mas_envs.protocol import role_of
from mas_envs.registration import EnvSpec, all_specs, make
from mas_envs.workflow import WorkflowEnv

HEADER = """\
# The environments

Made from the code by `python -m mas_envs.describe > docs/environments.md`: change the docstrings,
not this file. `mas-envs show ID` prints such a page for any environment, yours included
(`mas-envs show my_module:MyEnv`). To use one in a method of your own, see
[own-method.md](own-method.md); to write one, [new-workflow.md](new-workflow.md); in Gymnasium,
PettingZoo's parallel API or TorchRL, [adapters.md](adapters.md).

"""


def describe(id: str, **kwargs: Any) -> str:
    """One environment as Markdown. Raises what `make` raises."""
    return "\n".join(_page(make(id, **kwargs), "#", common=True)) + "\n"


def all_pages() -> str:
    """docs/environments.md: what all environments share, then those that we ship."""
    index, pages = [], [["## What all environments share", "", *_words(WorkflowEnv, "###", True)]]
    for env in map(make, shipped()):
        id = env.spec.id
        index.append(f"- [{id}](#{id}): {headline(type(env))}")
        episode = _fenced(conversation_text(play_example(env)))
        pages.append([*_page(env, "##", common=False), "", "### An episode", "", *episode])
    return HEADER + "\n\n".join("\n".join(page) for page in [index, *pages]) + "\n"


def shipped() -> list[EnvSpec]:
    """The environments of this package, without plug-ins."""
    return [spec for spec in all_specs() if spec.entry_point.startswith("mas_envs.")]


def _page(env: WorkflowEnv, mark: str, common: bool) -> Iterator[str]:
    yield from (f"{mark} {env.spec.id}", "", *_words(type(env), f"{mark}#", common, _facts(env)))
    if env.default_prompts is not None:
        yield from ("", f"{mark}# Prompts `{env.prompts_id}`")
        for who, texts in _texts(env).items():
            for key in (key for key in TEXTS if texts.get(key)):
                yield from ("", f"`{who}`, {key}:", "", *_fenced(texts[key]))


def _words(cls: type, mark: str, common: bool, facts: Iterable[str] = ()) -> Iterator[str]:
    """Prose, facts, sections, arguments."""
    yield from filter(None, [_prose(cls)])
    yield from facts
    sections = sections_of(cls, common)
    meanings = sections.get("Arguments", {})
    sections["Arguments"] = {
        name if one.default is one.empty else f"{name} = {one.default!r}": meanings.get(name, "")
        for name, one in parameters(cls, common).items()
    }
    for title in TITLES:
        if entries := sections.get(title):
            yield from ("", f"{mark} {title}", "")
            yield from (_entry(name, text) for name, text in entries.items())


def headline(cls: type) -> str:
    """The first line of what the docstring says."""
    return next(iter(_prose(cls).splitlines()), "")


def _prose(cls: type) -> str:
    """What the docstring says in words, or the nearest base's."""
    classes = classes_of(cls, common=cls is WorkflowEnv)
    proses = (read_docstring(vars(one).get("__doc__") or "")[0] for one in classes)
    return next(filter(None, proses), "")


def _entry(name: str, text: str) -> str:
    return "- " + ": ".join(part for part in (f"`{name}`" if name else "", text) if part)


def _facts(env: WorkflowEnv) -> Iterator[str]:
    """What the made environment says of itself."""
    given = "".join(f", {key}={value!r}" for key, value in env.spec.kwargs.items())
    observed = dict.fromkeys(str(env.observation_space(agent)) for agent in env.possible_agents)
    acted = dict.fromkeys(str(env.action_space(agent)) for agent in env.possible_agents)
    facts = {
        "Make": f'`mas_envs.make("{env.spec.id}"{given})`',
        "Agents": _listed(env.possible_agents),
        "Decisions": f"at most {env.max_decisions} in an episode",
        "Observation space": _listed(observed),
        "Action space": _listed(acted),
        "Default tasks": ", ".join(f"{key} `{value}`" for key, value in env.default_tasks.items()),
        "Tools": _listed(env.tools),
        "Prompt sets": _listed(_prompt_sets(env)),
    }
    yield ""
    yield from (f"- {name}: {text}" for name, text in facts.items() if text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _prompt_sets(env: WorkflowEnv) -> Iterator[str]:
    """Of the sets beside the default one, those that have texts for this team, by name and id."""
    if env.default_prompts is None:
        return
    for path in sorted(env.default_prompts.parent.glob("*.toml")):
        try:
            yield f"{path.stem} ({PromptSet(path, env.possible_agents).id})"
        except BadFile:
            continue


def _texts(env: WorkflowEnv) -> dict[str, dict[str, str]]:
    """The prompts by role, and by id for an agent that has its own."""
    shown: dict[str, dict[str, str]] = {}
    for agent in env.possible_agents:
        texts = env.prompts.texts[agent]
        if shown.setdefault(role_of(agent), texts) != texts:
            shown[agent] = texts
    return shown


def _fenced(text: str) -> list[str]:
    fence = "```" if "```" not in text else "`````"
    return [f"{fence}text", text.rstrip("\n"), fence]
