"""Prompt sets: one pass of replacement, strict files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_envs
from mas_envs.errors import BadFile, UnknownName
from mas_envs.math.env import PROMPTS
from mas_envs.prompts import PromptSet, fill, load_prompts


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
    prompts = load_prompts(path, PROMPTS, ["s"])
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
        "[s]\nuser = 'x'\n[s]\n", "[[s]]\nuser = 'x'\n",
    ],
    ids=repr,
)  # fmt: skip
def test_bad_files_name_the_file(tmp_path, text):
    with pytest.raises(BadFile, match=r"set\.toml"):
        PromptSet(write(tmp_path, text), ["s"])


def test_missing_files_and_names(tmp_path):
    with pytest.raises(BadFile, match="No such file"):
        load_prompts(tmp_path / "nowhere.toml", PROMPTS, ["solver"])
    with pytest.raises(BadFile):
        load_prompts(str(tmp_path / ".toml"), PROMPTS, ["solver"])
    for name in ("defualt", "", "default.tom", None, 3):
        with pytest.raises(UnknownName, match="prompt set"):
            load_prompts(name, PROMPTS, ["solver"])


def test_crlf_files_give_the_same_messages(tmp_path):
    text = '[s]\nuser = """\na\nb{q}"""\n'
    unix = PromptSet(write(tmp_path, text), ["s"]).messages("s", {"q": "Q"})
    assert (
        PromptSet(write(tmp_path, text.replace("\n", "\r\n")), ["s"]).messages("s", {"q": "Q"})
        == unix
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in PROMPTS.glob("*.toml")))
def test_shipped_sets_show_the_question(name):
    env_id = "math-single-v0" if name == "single" else "math-v0"
    env = mas_envs.make(env_id, prompts=name)
    env.reset(seed=0)
    assert env.episode.prompts.startswith(f"{name}-v")
    assert env.episode.question in env.observe("solver_0")["messages"][-1]["content"]
    if env_id == "math-v0":
        env.step(r"my draft \boxed{12345}")
        shown = env.observe("verifier_0")["messages"][-1]["content"]
        assert "my draft" in shown
        assert env.episode.question in shown
        assert "{" not in shown.replace(r"\boxed{", "")
