"""Pages about environments: computed facts, words from docstrings, the file in docs/."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from mas_envs import Ask, Call, Message, Outcome, TaskSet, WorkflowEnv, make
from mas_envs.by_name import by_name
from mas_envs.describe import all_pages, describe, shipped
from mas_envs.describe.docstrings import TITLES, parameters, read_docstring, sections_of
from mas_envs.describe.examples import EXAMPLES, play_example
from mas_envs.episodes.text import conversation_text
from mas_envs.errors import UnknownName
from mas_envs.parsing import boxed
from mas_envs.protocol import role_of

DOCS = Path(__file__).parents[2] / "docs" / "environments.md"
HERE = "mine_to_describe"
IDS = [spec.id for spec in shipped()]


def class_of(id):
    return by_name(make(id).spec.entry_point)


# ---- what we ship --------------------------------------------------------------------------------


def test_the_file_is_what_the_code_says():
    written = DOCS.read_text(encoding="utf-8")
    fix = "docs/environments.md is stale: python -m mas_envs.describe > docs/environments.md"
    assert written == all_pages(), fix


def test_the_command_writes_the_same_in_another_process():
    command = [sys.executable, "-m", "mas_envs.describe"]
    made = subprocess.run(command, capture_output=True, check=True, env={"PYTHONHASHSEED": "77"})
    assert made.stdout.decode("utf-8") == DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("id", IDS)
def test_every_argument_is_described_in_words_and_nothing_else_is(id):
    cls = class_of(id)
    assert sections_of(cls)["Arguments"].keys() == parameters(cls).keys()


@pytest.mark.parametrize("id", IDS)
def test_every_role_has_an_actions_line_and_every_page_all_sections(id):
    sections = sections_of(class_of(id), common=False)
    roles = dict.fromkeys(map(role_of, make(id).possible_agents))
    assert list(sections["Actions"]) == list(roles)
    assert all("invalid" in text or "the same" in text for text in sections["Actions"].values())
    assert {"Actions", "Rewards", "Info", "Arguments", "Versions"} == sections.keys()
    assert "team" in sections["Rewards"]
    assert f"v{id.rpartition('-v')[2]}" in sections["Versions"]


@pytest.mark.parametrize("id", [*IDS, None])
def test_no_section_of_a_docstring_is_misspelt_or_empty(id):
    for cls in (class_of(id) if id else WorkflowEnv).__mro__:
        if issubclass(cls, WorkflowEnv):
            prose, sections = read_docstring(cls.__doc__)
            assert prose and not [line for line in prose.splitlines() if line.endswith(":")]
            for entries in sections.values():
                assert entries and all(name and text for name, text in entries.items())


@pytest.mark.parametrize("id", IDS)
def test_the_example_ends_well_and_its_info_is_what_the_page_says(id):
    episode = play_example(make(id))
    assert episode.grade.correct, "the tasks have changed; write other answers"
    assert len(episode.turns) == len(EXAMPLES[id][1])
    assert {turn.parse_status for turn in episode.turns} == {"ok"}
    assert episode.info.keys() == sections_of(class_of(id), common=False)["Info"].keys()


def test_a_page_shows_the_arguments_it_was_made_with():
    page = describe("vote-v0", solvers=5)
    assert 'mas_envs.make("vote-v0", solvers=5)' in page
    assert "`solver_0`, `solver_1`, `solver_2`, `solver_3`, `solver_4`\n" in page
    assert "at most 5 in an episode" in page
    assert "- `solvers = 3`: how many vote." in page, "the default is not the argument"
    assert "- `invalid_penalty = 0.0`: what" in page, "a terminal has no common page to look up"
    with pytest.raises(UnknownName, match="solvers"):
        describe("vote-v0", solver=5)


def test_prompt_sets_are_those_that_fit_the_team():
    sets = next(line for line in describe("math-v0").splitlines() if "Prompt sets" in line)
    assert "`default (" in sets and "`tiny (" in sets and "single" not in sets
    assert "`single (" in describe("math-single-v0")
    assert "`solver`, history:\n\n```text\n\nnot {answer}\n```" in describe(
        "math-v0", prompts="tiny"
    )


def test_an_agent_with_a_text_of_its_own_is_shown(tmp_path):
    (tmp_path / "own.toml").write_text('[solver]\nuser = "a"\n[solver_1]\nuser = "b ``` b"\n')
    page = describe("vote-v0", prompts=str(tmp_path / "own.toml"))
    assert "`solver`, user:\n\n```text\na\n```\n" in page
    assert "`solver_1`, user:\n\n`````text\nb ``` b\n`````\n" in page
    assert "`solver_2`" not in page.partition("Prompts `")[2]


# ---- somebody else's -----------------------------------------------------------------------------


class Bare(WorkflowEnv):
    roles = ("guesser",)

    def __init__(self, secret, *, hints: int = 3, **common):
        super().__init__(**common)

    def play(self, task, rng):
        reply = yield Ask("guesser_0", [Message("user", task.question)])
        return Outcome(reward=float(reply.text == task.answer))


class Described(Bare):
    """Guess again.

    Args:
        none: this is another house's section, hence prose

    Actions:
        guesser: a number: the whole text,
            continued here: and here.
        no colon in this line
    Arguments:
        hints: how many.

    More prose.
    """


@pytest.fixture
def mine(monkeypatch):
    module = type(sys)(HERE)
    module.Bare, module.Described = Bare, Described
    monkeypatch.setitem(sys.modules, HERE, module)


def test_a_class_without_a_docstring_has_the_computed_facts(mine):
    page = describe(f"{HERE}:Bare", secret=7)
    assert page.startswith(f"# {HERE}:Bare\n\n\n- Make: "), "not the words of the base class"
    assert f'mas_envs.make("{HERE}:Bare", secret=7)' in page
    assert "\n- `secret`\n- `hints = 3`\n- `tasks = None`: a `TaskSet`" in page
    assert "## Actions" not in page and "Prompt" not in page.replace("prompts", "")
    assert "Tools" not in page


def test_sections_are_read_and_prose_around_them_is_kept():
    prose, sections = read_docstring(Described.__doc__)
    assert sections["Actions"] == {
        "guesser": "a number: the whole text, continued here: and here. no colon in this line"
    }
    assert sections["Arguments"] == {"hints": "how many."}
    assert prose.startswith("Guess again.\n\nArgs:\n") and prose.endswith("\n\nMore prose.")


def test_a_subclass_inherits_words_and_arguments(mine):
    page = describe(f"{HERE}:Described", secret=1)
    assert "- `hints = 3`: how many.\n" in page
    assert page.index("## Rewards") > page.index("## Actions")
    assert list(parameters(Described))[:2] == ["secret", "hints"]
    assert parameters(Described)["secret"].default is inspect.Parameter.empty


@pytest.mark.parametrize("text", ["", "Actions:", "Actions:\n    x", "Rewards:\nno indent"])
def test_odd_docstrings_do_no_harm(text):
    _prose, sections = read_docstring(text)
    assert sections.keys() <= set(TITLES)


# ---- episodes as text ----------------------------------------------------------------------------


class Talk(WorkflowEnv):
    """One agent, one tool, no grade."""

    roles = ("a",)

    def __init__(self, result, **common):
        super().__init__(**common)
        self.tools = {"look": lambda batch: [result] * len(batch)}

    def play(self, task, rng):
        reply = yield Ask("a_0", [Message("user", "q")], parse=boxed)
        yield Call("look", {"query": "é\n"})
        return Outcome(reward=0.5, turn_rewards={reply.turn: 0.25})


def told(result, **kwargs):
    env = Talk(result, tasks=TaskSet([("q", "4", {})]), **kwargs)
    env.reset(seed=0)
    env.step("no box")
    return conversation_text(env.episode).splitlines()[1:]


PASSAGES = [{"id": "1", "title": "T", "text": "a\nb", "score": 1.0}, {"text": "c"}]


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (PASSAGES, ['(look "é\\n": 2 passages)', "    [1] T: a b", "    [2] c"]),
        ([], ['(look "é\\n": 0 passages)']),
        ([1, {"text": "c"}], ['(look {"query":"é\\n"}: [1,{"text":"c"}])']),
        ({"correct": None, "status": "error"}, ["(look: undecided, error)"]),
        ({"correct": False, "status": "ok", "reason": "5"}, ["(look: wrong, 5)"]),
        (
            {"correct": [1], "status": "ok"},
            ['(look {"query":"é\\n"}: {"correct":[1],"status":"ok"})'],
        ),
        (None, ['(look {"query":"é\\n"}: null)']),
    ],
)
def test_what_tools_gave_back_reads_well(result, lines):
    assert told(result)[1:-1] == lines


def test_rewards_of_turns_and_of_teams_without_a_grade_are_told():
    lines = told(3, invalid_penalty=1.0)
    assert lines[0] == "a_0 [missing, reward -0.75]: no box"
    assert lines[-1] == "reward 0.5"
