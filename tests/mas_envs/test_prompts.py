"""Prompt sets: one pass of replacement, strict files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs.errors import BadFile, UnknownName, UserError
from mas_envs.math.env import MathEnv
from mas_envs.prompts import PROMPT_SETS, PromptSet, fill, load_prompts
from mas_envs.protocol import role_of

DEFAULT = PROMPT_SETS / "math" / "default.toml"


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(), min_size=3))
def test_a_value_is_never_read_as_a_template(fields):
    assert fill("{a}|{b}|{c}", fields) == "|".join(fields[name] for name in "abc")


@pytest.mark.parametrize(
    "template",
    [r"\boxed{}", "{unknown}", "{", "}", "{{}}", "{ a }", "{a!r}", "{a:5}", "{0}", r"\{a\}"],
)
def test_other_braces_stay(template):
    assert fill(template, {"a": "X"}) == template


def test_values_with_backslashes_and_group_references():
    assert fill("{a}", {"a": r"\1 \g<0> {a}"}) == r"\1 \g<0> {a}"


def write(tmp_path, text):
    path = tmp_path / "set.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_messages_and_history(tmp_path):
    path = write(
        tmp_path, '[s]\nsystem = "sys"\nuser = "{q}{history}!"\nhistory = "\\n{round}:{q}"\n'
    )
    prompts = load_prompts(path, DEFAULT, ["s"])
    shown = prompts.messages(
        "s", {"q": "Q"}, [{"round": "1", "q": "{round}"}, {"round": "2", "q": ""}]
    )
    assert [(m.role, m.content) for m in shown] == [
        ("system", "sys"),
        ("user", "Q\n1:{round}\n2:!"),
    ]


def test_the_id_changes_with_any_byte(tmp_path):
    text = 'name = "n"\nversion = 3\n[s]\nuser = "u"\n'
    first = PromptSet(write(tmp_path, text), ["s"]).id
    assert first.startswith("n-v3-")
    assert PromptSet(write(tmp_path, text + "\n"), ["s"]).id != first
    assert PromptSet(write(tmp_path, text), ["s"]).id == first


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "[s]\n", "[s]\nsystem='x'\n", "s = 3\n", "[s]\nuser = 3\n",
        "[s]\nuser = 'x'\nhistory = ['y']\n", "[s]\nuser = 'x'\nsystem = 1\n", b"\xff\xfe",
        "[s]\nuser = 'x'\n[s]\n", "[[s]]\nuser = 'x'\n", "[s]\nuser = 'x'\nhistroy = 'y'\n",
        "[s]\nuser = 'x'\n[s.history]\ntext = 'y'\n", "[s_1]\nuser = 'x'\n",
    ],
    ids=repr,
)  # fmt: skip
def test_bad_files_name_the_file(tmp_path, text):
    with pytest.raises(BadFile, match=r"set\.toml"):
        PromptSet(write(tmp_path, text), ["s"])


def test_missing_files_and_names(tmp_path):
    with pytest.raises(BadFile, match="No such file"):
        load_prompts(tmp_path / "nowhere.toml", DEFAULT, ["solver"])
    with pytest.raises(BadFile):
        load_prompts(str(tmp_path / ".toml"), DEFAULT, ["solver"])
    for name in ("defualt", "", "default.tom"):
        with pytest.raises(UnknownName, match="prompt set"):
            load_prompts(name, DEFAULT, ["solver"])
    for name in (None, 3):
        with pytest.raises(UserError, match="give the name of a set"):
            load_prompts(name, DEFAULT, ["solver"])


def test_crlf_files_give_the_same_messages(tmp_path):
    text = '[s]\nuser = """\na\nb{q}"""\n'
    unix = PromptSet(write(tmp_path, text), ["s"]).messages("s", {"q": "Q"})
    assert (
        PromptSet(write(tmp_path, text.replace("\n", "\r\n")), ["s"]).messages("s", {"q": "Q"})
        == unix
    )


# ---- texts for single agents ---------------------------------------------------------------------

TEAM = ["solver_0", "solver_1", "judge"]


def sets(tmp_path, **texts):
    """A TOML file per name, in which every agent is shown that name and the agent's own table."""
    paths = {}
    for name, tables in texts.items():
        paths[name] = tmp_path / f"{name}.toml"
        paths[name].write_text("".join(f"[{t}]\nuser = '{name} {t}'\n" for t in tables.split()))
    return paths


def shown(prompts):
    return [prompts.messages(agent, {})[0].content for agent in TEAM]


def test_a_table_of_one_agent_goes_before_its_roles(tmp_path):
    paths = sets(tmp_path, d="solver judge", own="solver solver_1 judge", only="solver_1 judge")
    assert shown(load_prompts(paths["own"], paths["d"], TEAM)) == [
        "own solver", "own solver_1", "own judge",
    ]  # fmt: skip
    found = r"no \[solver\] table with a 'user' text; add it; the file has \[solver_1\], \[judge\]$"
    with pytest.raises(BadFile, match=found):
        load_prompts(paths["only"], paths["d"], TEAM)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_mapping_by_role_and_by_id_whatever_its_order(tmp_path, backwards):
    paths = sets(tmp_path, d="solver judge", a="solver judge", b="solver solver_1")
    choice = {"solver": str(paths["a"]), "solver_1": str(paths["b"])}
    choice = dict(reversed(choice.items())) if backwards else choice
    prompts = load_prompts(choice, paths["d"], TEAM)
    assert shown(prompts) == ["a solver", "b solver_1", "d judge"]
    forwards = load_prompts(dict(sorted(choice.items())), paths["d"], TEAM)
    assert prompts.id == forwards.id, "an environment's spec is stored with sorted keys"


def test_a_mapping_names_shipped_sets_too_and_needs_tables_of_the_named_only(tmp_path):
    paths = sets(tmp_path, default="solver judge", other="judge")
    assert shown(load_prompts({"judge": "other"}, paths["default"], TEAM)) == [
        "default solver", "default solver", "other judge",
    ]  # fmt: skip
    assert shown(load_prompts({}, paths["default"], TEAM))[2] == "default judge"
    with pytest.raises(BadFile, match=r"other\.toml: no \[solver\] table"):
        load_prompts({"solver_0": "other"}, paths["default"], TEAM)


def test_a_mapping_as_text(tmp_path):
    paths = sets(tmp_path, d="solver judge", a="solver judge", b="solver solver_1")
    mapping = {"solver": str(paths["a"]), "solver_1": "b"}
    text = f" solver_1 = b,solver={paths['a']}"
    asked, told = (load_prompts(choice, paths["d"], TEAM) for choice in (mapping, text))
    assert (shown(told), told.id) == (shown(asked), asked.id)
    for text in ("solver=a,b", "solver=a,", "=a", "solver=", "judge=a,solver==b"):
        with pytest.raises(UserError):
            load_prompts(text, paths["d"], TEAM)
    with pytest.raises(UnknownName, match="unknown agent 'solvr'"):
        load_prompts("solvr=a", paths["d"], TEAM)


def test_a_file_with_an_equals_sign_in_its_name_is_a_file(tmp_path):
    (tmp_path / "lr=1").mkdir()
    paths = sets(tmp_path / "lr=1", d="solver judge", a="solver judge")
    assert shown(load_prompts(str(paths["a"]), paths["d"], TEAM))[2] == "a judge"


def test_an_agent_that_the_set_was_not_loaded_for(tmp_path):
    """A workflow that asks for a role's texts, or a misspelt agent's, is told the ids there are."""
    prompts = load_prompts("d", sets(tmp_path, d="solver judge")["d"], TEAM)
    for agent in ("solver", "solver_2", "Judge", None):
        with pytest.raises(UnknownName, match="known: judge, solver_0, solver_1"):
            prompts.messages(agent, {})


def test_an_id_without_a_number_is_its_own_role(tmp_path):
    paths = sets(tmp_path, d="solver judge", e="judge")
    assert shown(load_prompts({"judge": paths["e"]}, paths["d"], TEAM))[2] == "e judge"


def test_the_id_of_a_mapping_changes_with_each_file_and_with_whom_it_is_for(tmp_path):
    paths = sets(tmp_path, d="solver judge", a="solver judge", b="solver solver_1")
    choices = [
        {}, {"solver": "a"}, {"solver_0": "a"}, {"solver_1": "a"}, {"judge": "a"},
        {"solver": "b"}, {"solver": "a", "solver_1": "b"}, {"solver": "b", "solver_1": "a"},
    ]  # fmt: skip

    def ids():
        return [load_prompts(choice, paths["d"], TEAM).id for choice in choices]

    before = ids()
    assert len(set(before)) == len(before)
    for name, used in (("a", [1, 2, 3, 4, 6, 7]), ("b", [5, 6, 7]), ("d", range(8))):
        text = paths[name].read_text()
        paths[name].write_text(text + "# another byte\n")
        changed = [n for n, (was, now) in enumerate(zip(before, ids(), strict=True)) if was != now]
        assert changed == list(used)
        paths[name].write_text(text)
    assert ids() == before


@pytest.mark.parametrize("name", ["solvr", "solver_2", "", "Solver", 0, None])
def test_a_mapping_of_an_unknown_agent(name):
    with pytest.raises(UnknownName, match="prompts: unknown agent"):
        MathEnv(prompts={name: "default"})


@pytest.mark.parametrize(
    ("choice", "error"),
    [({"solver": None}, UserError), ({"solver": "defualt"}, UnknownName),
     ({"solver": 3}, UserError), ({"solver": {"solver": "default"}}, UserError),
     ({"solver": "no.toml"}, BadFile)],
    ids=repr,
)  # fmt: skip
def test_a_mapping_of_no_set(choice, error):
    with pytest.raises(error):
        mas_envs.make("math-v0", prompts=choice)


def test_an_environment_is_made_again_with_its_mapping(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('[solver]\nuser = "Hard: {question}"\n[solver_2]\nuser = "Easy: {question}"\n')
    env = mas_envs.make("vote-v0", prompts={"solver_2": str(mine), "solver_0": str(mine)})
    again = mas_envs.make(mas_envs.EnvSpec.from_json(env.spec.to_json()))
    assert again.prompts_id == env.prompts_id
    for one in (env, again):
        one.reset(seed=0)
        texts = [one.observe(agent)["messages"][0]["content"] for agent in one.possible_agents]
        question = one.episode.question
        assert [texts[0], texts[2]] == [f"Hard: {question}", f"Easy: {question}"]
        assert texts[1].startswith("Solve the problem step by step")
        assert one.episode.prompts == env.prompts_id


def test_an_environment_without_sets_takes_none():
    class Plain(mas_envs.WorkflowEnv):
        roles = ("a",)

    with pytest.raises(UserError, match="Plain has no prompt sets"):
        Plain(prompts="default")
    assert Plain().prompts_id == ""


# ---- what we ship --------------------------------------------------------------------------------

SHIPPED = {
    "debate/default": "debate-v0", "math/default": "math-v0", "math/single": "math-single-v0",
    "math/tiny": "math-v0", "proposer_solver/default": "proposer-solver-v0",
    "search/default": "search-v0", "search/single": "search-single-v0", "search/tiny": "search-v0",
    "vote/default": "vote-v0",
}  # fmt: skip


def test_no_shipped_set_is_left_out():
    found = {path.relative_to(PROMPT_SETS).with_suffix("") for path in PROMPT_SETS.rglob("*.toml")}
    assert sorted(map(str, found)) == sorted(SHIPPED)


SAID = {  # no braces around a word, which would look like a placeholder
    "solver": r"draft \boxed{1 + 1}", "judge": r"\boxed{1 + 1}", "debater": r"point \boxed{1 + 1}",
    "verifier": "No, I say.", "proposer": "<problem>new problem</problem>",
    "search": "<search>state capital</search>", "searcher": "<search>state capital</search>",
    "answer": "I do not know.",
}  # fmt: skip
SEEN_LAST = {  # by the agent in its last turn: what the others said or found
    "math-v0": ("verifier_0", r"\boxed{1 + 1}"), "math-single-v0": ("solver_0", ""),
    "debate-v0": ("judge_0", "debater_1 said:\npoint"), "vote-v0": ("solver_2", ""),
    "proposer-solver-v0": ("solver_3", "new problem"),
    "search-v0": ("search_0", "Search 2: state capital\n[1] "),
    "search-single-v0": ("searcher_0", "Search 3: state capital\n[1] "),
    "search/tiny": ("search_0", "\n[1] "),
}  # fmt: skip


def shown_in(env):
    """(agent, text) of every decision of one episode in which agents say what `SAID` has."""
    env.reset(seed=0)
    shown = []
    while not env.terminations[env.agent_selection]:
        agent = env.agent_selection
        shown.append((agent, "\n".join(m["content"] for m in env.observe(agent)["messages"])))
        env.step(SAID[role_of(agent)])
    return shown


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_set_leaves_no_placeholder_and_shows_all_there_is(name):
    id, prompts = SHIPPED[name], name.partition("/")[2]
    options = {"max_rounds": 2, "final_review": True} if id == "math-v0" else {}
    env = mas_envs.make(id, prompts=prompts, **options)
    shown = shown_in(env)
    assert env.episode.prompts == env.prompts_id
    assert not any(re.search(r"\{\w+\}", text) for _, text in shown)
    for agent, text in shown:
        own_problem = id == "proposer-solver-v0" and agent != "proposer_0"
        assert ("new problem" if own_problem else env.episode.question) in text
    agent, seen = SEEN_LAST.get(name, SEEN_LAST[id])
    assert seen in dict(shown)[agent]


@pytest.mark.parametrize("name", [name for name in sorted(SHIPPED) if name[:4] in ("math", "sear")])
def test_a_shipped_set_serves_the_compatible_variant(name):
    env = mas_envs.make(SHIPPED[name], prompts=name.partition("/")[2], compat="drmas")
    assert not any(re.search(r"\{\w+\}", text) for _, text in shown_in(env))
