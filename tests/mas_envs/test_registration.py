"""Ids, specs that make the same environment again, and plug-ins from other distributions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pettingzoo
import pytest

import mas_envs
from mas_envs import EnvSpec, TaskSet, make, register, registry, spec
from mas_envs.errors import UnknownName, UserError


@pytest.fixture(autouse=True)
def registry_as_before():
    ours, theirs = dict(registry), dict(pettingzoo.aec_registry)
    yield
    for now, before in ((registry, ours), (pettingzoo.aec_registry, theirs)):
        now.clear()
        now.update(before)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [("math-v1", "math-v0"), ("meth-v0", "math-v0"), ("math-singel-v0", "math-single-v0")],
)
def test_an_unknown_id_names_the_nearest(unknown, nearest):
    for ask in (make, spec):
        with pytest.raises(
            UnknownName, match=f"unknown environment '{unknown}'; did you mean '{nearest}'"
        ):
            ask(unknown)


@pytest.mark.parametrize("id", ["math-v1", "zzzzzzzz"])
def test_an_unknown_id_lists_all_and_says_how_to_bring_ones_own(id):
    with pytest.raises(UnknownName) as raised:
        make(id)
    for wanted in ("math-v0", "math-single-v0", "'module:Class'", "mas_envs.register"):
        assert wanted in str(raised.value)


def test_of_many_names_only_the_nearest_is_given():
    many = [f"name-{number}" for number in range(13)]
    assert str(UnknownName("thing", "nam-12", many)) == (
        "unknown thing 'nam-12'; did you mean 'name-12'?"
    )
    assert str(UnknownName("thing", "nam-1", many[:2], "x.toml", "add it")) == (
        "x.toml: unknown thing 'nam-1'; did you mean 'name-1'? known: name-0, name-1; add it"
    )


def test_an_id_like_nothing_lists_all():
    with pytest.raises(UnknownName, match=r"known: .*math-v0"):
        make("zzzzzzzz")


@pytest.mark.parametrize(
    ("argument", "nearest"),
    [("max_round", "max_rounds"), ("promts", "prompts"), ("task", "tasks"),
     ("invalid_penalties", "invalid_penalty"), ("render", "render_mode")],
)  # fmt: skip
def test_an_unknown_argument_names_the_nearest(argument, nearest):
    with pytest.raises(UnknownName, match=f"math-v0: unknown argument '{argument}'.*'{nearest}'"):
        make("math-v0", **{argument: 1})


@pytest.mark.parametrize("argument", ["self", "common", "_tasks", "kwargs", ""])
def test_no_internal_name_is_an_argument(argument):
    with pytest.raises(UserError, match="argument"):
        make("math-v0", **{argument: 1})


@pytest.mark.parametrize("id", ["math", "Math-v0", "math_v0", "math-v", "-v0", "math-v0 ",
                                "math--v0",
                                "math-v0\n", "", "../x-v0", "math-v0.1"])  # fmt: skip
def test_bad_ids(id):
    with pytest.raises(UserError, match="write it like 'name-v0'"):
        register(id, "mas_envs.math.env:MathEnv")
    assert id not in registry


def test_registering_twice():
    register("math-v0", "mas_envs.math.env:MathEnv")
    with pytest.raises(UserError, match=r"taken by mas_envs\.math\.env:MathEnv"):
        register("math-v0", "elsewhere:Env")
    with pytest.raises(UserError, match="taken"):
        register("math-v0", "mas_envs.math.env:MathEnv", {"max_rounds": 3})
    assert registry["math-v0"].kwargs == {}


def test_registered_arguments_and_overriding():
    register("math-long-v0", "mas_envs.math.env:MathEnv", {"max_rounds": 5})
    assert make("math-long-v0").max_rounds == 5
    assert make("math-long-v0", max_rounds=3).max_rounds == 3
    assert make("math-long-v0").spec.kwargs == {"max_rounds": 5}
    assert spec("math-long-v0").kwargs == {"max_rounds": 5}
    assert pettingzoo.make("aec", "math-long-v0").max_rounds == 5


@pytest.mark.parametrize(
    "entry_point",
    [
        "nowhere_at_all:Env",
        "mas_envs.math.env:NoSuch",
        "mas_envs.math.nothing:X",
        ":X",
        "mas_envs:",
    ],
)
def test_entry_points_that_lead_nowhere(entry_point):
    register("lost-v0", entry_point)
    with pytest.raises(UserError, match="lost-v0: entry point"):
        make("lost-v0")


def test_an_entry_point_without_a_colon():
    with pytest.raises(UserError, match="module:Class"):
        register("odd-v0", "mas_envs.math.env.MathEnv")


@pytest.mark.parametrize("entry_point", ["builtins:dict", "json:dumps"])
def test_an_entry_point_that_makes_something_else(entry_point):
    register("odd-v0", entry_point, {"obj": 1} if "json" in entry_point else {})
    with pytest.raises(UserError, match="not a WorkflowEnv"):
        make("odd-v0")


def prompt_file(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text('[solver]\nuser = "{question}{history}"\n[verifier]\nuser = "{draft}"\n')
    return path


def test_a_serialised_spec_makes_the_same_environment(tmp_path):
    arguments = {
        "max_rounds": 3, "malformed_verdict": "approve", "invalid_penalty": {"solver": 0.5},
        "prompts": prompt_file(tmp_path),
        "tasks": {"source": "arith", "split": "dev", "levels": (1, 2), "n": 7},
        "render_mode": "ansi",
    }  # fmt: skip
    env = make("math-v0", **arguments)
    text = env.spec.to_json()
    again = make(EnvSpec.from_json(text))
    assert again.spec == env.spec
    assert again.spec.to_json() == text
    assert again.prompts_id == env.prompts_id
    assert again.invalid_penalty == env.invalid_penalty
    assert again.tasks.digest == env.tasks.digest
    assert again.render_mode is None, "how one looks at it is no part of the environment"
    assert json.loads(text)["kwargs"]["prompts"] == str(tmp_path / "p.toml")
    for one in (env, again):
        one.reset(seed=5)
        one.step(r"\boxed{1}")
    assert again.observe("verifier_0") == env.observe("verifier_0")
    assert again.episode.env == env.episode.env == json.loads(text)


def test_a_loaded_task_set_is_recorded_by_its_source():
    tasks = mas_envs.load_tasks("arith", split="test", n=9)
    env = make("math-v0", tasks=tasks)
    assert env.tasks is tasks
    again = make(EnvSpec.from_json(env.spec.to_json()))
    assert again.tasks.digest == tasks.digest


def test_tasks_in_memory_make_a_spec_that_refuses_instead_of_playing_others():
    env = make("math-v0", tasks=TaskSet([("1+1=?", "2", {})]))
    env.reset(seed=0)
    again = make(EnvSpec.from_json(env.spec.to_json()))
    with pytest.raises(UserError, match="1 tasks in memory"):
        again.reset(seed=0)


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"x", lambda: 0])
def test_arguments_that_cannot_be_recorded(value):
    with pytest.raises(UserError, match="math-v0: tasks"):
        make("math-v0", tasks={"source": value})


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "3", "{}", '{"id": "x"}', '{"id":"x","entry_point":"y"}',
             '{"id":"x","entry_point":"y","kwargs":3}',
             '{"id":"x","entry_point":"y","kwargs":"ab"}'],
)  # fmt: skip
def test_texts_that_are_no_spec(text):
    with pytest.raises(UserError, match="not an environment spec"):
        EnvSpec.from_json(text)


def test_changing_an_environments_spec_changes_no_other():
    make("math-v0", max_rounds=3).spec.kwargs["max_rounds"] = 9
    assert spec("math-v0").kwargs == {}
    assert make("math-v0").max_rounds == 2


PLUGIN = '''
import mas_envs
from mas_envs import Ask, Message, Outcome, WorkflowEnv

class Echo(WorkflowEnv):
    roles = ("parrot",)
    def __init__(self, *, word="hello", **common):
        super().__init__(**common)
        self.word = word
    def play(self, task, rng):
        reply = yield Ask("parrot_0", [Message("user", f"say {self.word}")])
        return Outcome(reward=float(reply.text == self.word))

def register_all():
    mas_envs.register("echo-v0", "plugged:Echo", {"word": "ahoy"})
'''  # fmt: skip

USE = """
import mas_envs, pettingzoo
assert "echo-v0" not in mas_envs.registry, "plug-ins load on first need"
env = mas_envs.make("echo-v0")
env.reset(seed=0)
env.step("ahoy")
assert env.episode.reward == 1.0 and env.episode.env["kwargs"] == {"word": "ahoy"}
assert pettingzoo.make("aec", "echo-v0", word="x").word == "x"
again = mas_envs.make(mas_envs.EnvSpec.from_json(env.spec.to_json()))
assert again.word == "ahoy"
print("played")
"""


def test_a_class_is_made_by_its_name_without_registration():
    env = make("mas_envs.math.env:MathEnv", max_rounds=3)
    assert env.spec == EnvSpec(env.spec.id, env.spec.id, {"max_rounds": 3})
    assert make(EnvSpec.from_json(env.spec.to_json())).spec == env.spec
    assert "mas_envs.math.env:MathEnv" not in registry
    with pytest.raises(UnknownName):  # what a submission names is never imported by `spec`
        spec("mas_envs.math.env:MathEnv")


@pytest.mark.parametrize("id", ["mas_envs.math.env:Nope", "no_such_module:X", ":X", "mas_envs:"])
def test_a_class_that_is_not_there_is_named(id):
    with pytest.raises(UserError, match=f"environment '{id}' cannot be imported: "):
        make(id)


@pytest.mark.parametrize(
    ("id", "hint"),
    [
        ("mas_envs.math.env:MathEnw", r"did you mean 'mas_envs\.math\.env:MathEnv'\?$"),
        ("mas_envs.math.env:xyzzy", "has no attribute 'xyzzy'$"),
        ("no_such_module:X", "looked for in the current folder and in PYTHONPATH$"),
    ],
)
def test_what_cannot_be_imported_says_where_to_look(id, hint):
    with pytest.raises(UserError, match=hint):
        make(id)


@pytest.mark.parametrize("id", [None, 3, Path])
def test_what_is_no_id_at_all(id):
    with pytest.raises(UserError, match="give an id, 'module:Class' or an EnvSpec"):
        make(id)
    with pytest.raises(UserError, match="write it as 'module:Class'"):
        register("no-text-v0", id)


def in_a_folder(folder: Path, *arguments: str):
    program = Path(sys.executable).with_name("mas-envs")
    return subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_console_script_finds_classes_of_the_current_folder_last(tmp_path):
    (tmp_path / "plugged.py").write_text(PLUGIN)
    (tmp_path / "wants_more.py").write_text("import not_installed_at_all")
    for decoy in ("benchmarks", "numpy"):
        (tmp_path / decoy).mkdir()
        (tmp_path / decoy / "__init__.py").write_text("raise SystemExit('a decoy was imported')")
    checked = in_a_folder(tmp_path, "check", "plugged:Echo", "-n", "2")
    assert checked.returncode == 0, checked.stderr
    assert "episodes end without a grade" in checked.stdout
    missing = in_a_folder(tmp_path, "check", "plugged:Ecko")
    assert missing.returncode == 2 and "'plugged:Ecko'" in missing.stderr
    wanting = in_a_folder(tmp_path, "check", "wants_more:Env")
    assert wanting.returncode == 2 and "not_installed_at_all" in wanting.stderr


def in_a_process_with_plugin(folder: Path, code: str, target: str = "plugged:register_all"):
    info = folder / "plugged-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "plugged.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mas_envs.environments]\nmine = {target}\n")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def test_another_distribution_adds_an_environment(tmp_path):
    done = in_a_process_with_plugin(tmp_path, USE)
    assert (done.stdout.strip(), done.returncode) == ("played", 0), done.stderr


@pytest.mark.parametrize("target", ["plugged:no_such", "no_such_module:f", "plugged:mas_envs"])
def test_a_broken_plugin_is_named_and_harms_no_built_in(tmp_path, target):
    code = """
import mas_envs
mas_envs.make("math-v0")
try:
    mas_envs.make("echo-v0")
except mas_envs.errors.UserError as error:
    print(error)
"""
    done = in_a_process_with_plugin(tmp_path, code, target)
    assert "plug-in mine = '" + target in done.stdout, done.stderr


def test_an_argument_that_is_missing_or_not_passed_on_is_named():
    broken = "tests.mas_envs.broken_envs"
    with pytest.raises(UserError, match="missing a required argument: 'size'"):
        make(f"{broken}:Wants")
    assert make(f"{broken}:Wants", size=2).spec.kwargs == {"size": 2}
    with pytest.raises(UnknownName, match=r"'tasks'; .*NoCommon.__init__ take \*\*common"):
        make(f"{broken}:NoCommon", tasks={"source": "arith"})
    with pytest.raises(UserError, match="json:loads: missing a required argument"):
        make("json:loads")
