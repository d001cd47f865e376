"""`mas-envs` on what people give it by mistake."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mas_envs import read_episodes, write_episodes
from mas_envs.cli import app
from mas_envs.prompts import PROMPT_SETS
from tests.mas_envs.viewer_cases import episode


def envs(*arguments, typed=None):
    words = [str(one) for one in arguments]
    return CliRunner().invoke(app, words, prog_name="mas-envs", input=typed)


@pytest.fixture
def run(tmp_path) -> Path:
    write_episodes(tmp_path / "first" / "episodes", [episode("a"), episode("b")])
    return tmp_path / "first"


def test_a_runs_folder_leads_to_its_episodes(run):
    for command in ("read", "view", "replay"):
        refused = envs(command, run)
        assert (
            refused.exit_code == 2 and f"its episodes are in {run / 'episodes'}" in refused.stderr
        )
    shown = envs("read", run / "episodes", "-n", 1)
    assert shown.exit_code == 0 and "question a" in shown.stdout
    assert "question b" not in shown.stdout


def test_nothing_to_show_is_said(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    for name in ("empty.jsonl", "folder", "missing"):
        refused = envs("read", tmp_path / name)
        assert refused.exit_code == 2 and refused.stdout == ""
        assert refused.stderr.startswith(f"mas-envs: {tmp_path / name}: no ")


def test_a_page_that_cannot_be_written_is_one_line(run, tmp_path):
    for out, reason in ((tmp_path, "Is a directory"), (tmp_path / "no/x.html", "No such file")):
        refused = envs("view", run / "episodes", "--out", out)
        assert refused.exit_code == 2 and refused.stderr.startswith(f"mas-envs: {out}: {reason}")
        assert refused.stderr.count("\n") == 1


def test_a_check_of_nothing_is_refused():
    assert envs("check", "math-v0", "-n", 0).exit_code == 2


def test_a_check_remarks_on_missing_grades_only_where_they_are_missing():
    checked = envs("check", "math-v0", "--episodes", 1)
    assert checked.exit_code == 0 and "grade" not in checked.stdout
    assert all(line.startswith("ok  ") for line in checked.stdout.splitlines())


def test_every_environment_is_listed_and_shown():
    listed = envs("list").stdout.splitlines()
    ids = [line.split()[0] for line in listed]
    assert {"math-v0", "search-v0", "debate-v0", "vote-v0", "proposer-solver-v0"} <= set(ids)
    for id in ids:
        shown = envs("show", id)
        assert shown.exit_code == 0 and id in shown.stdout
    assert "solver_4" in envs("show", "vote-v0", "--arg", "solvers=5").stdout


def test_what_is_shown_must_be_an_environment(run):
    assert "did you mean 'search-v0'" in envs("show", "serch-v0").stderr
    refused = envs("show", run)
    assert refused.exit_code == 2 and "mas-envs read" in refused.stderr


def test_a_person_takes_one_role(tmp_path):
    out = tmp_path / "played.jsonl"
    typed = "I am sure.\n" + "<verify>yes</verify>\n" * 9
    played = envs(
        "play", "search-v0", "--policy", "verifier=human,random", "--out", out, typed=typed
    )
    assert played.exit_code == 0, played.stderr
    assert "verifier_0> " in played.stdout and "answer_0> " not in played.stdout
    (episode,) = read_episodes(out)
    first, second = [turn for turn in episode.turns if turn.role == "verifier"][:2]
    assert (first.text, first.parse_status, first.model) == ("I am sure.", "missing", "human")
    assert second.text == "<verify>yes</verify>"
    assert {turn.model for turn in episode.turns if turn.role != "verifier"} == {"random"}


def test_without_a_policy_a_person_is_everybody():
    played = envs("play", "math-v0", typed="\\boxed{1}\n<verify>approve</verify>\n")
    assert played.exit_code == 0 and "solver_0> " in played.stdout
    ended = envs("play", "math-v0", typed="\\boxed{1}\n")
    assert ended.exit_code == 2 and "the input ended" in ended.stderr


def test_play_says_what_is_wrong():
    for arguments, words in (
        (["--policy", "judge=random"], "'judge'"),
        (["--policy", "radnom"], "did you mean 'random'"),
        (["--task", "0123456789abcdef"], "no task"),
        (["--arg", "max_rounds=zero"], "max_rounds 'zero'"),
        (["--arg", "rounds=2"], "max_rounds"),
    ):
        refused = envs("play", "math-v0", *arguments)
        assert refused.exit_code == 2 and words in refused.stderr, refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.fixture
def played(tmp_path):
    out = tmp_path / "played.jsonl"
    made = envs("play", "debate-v0", "--policy", "random", "-n", 3, "--seed", 4, "--out", out)
    assert made.exit_code == 0, made.stderr
    assert len({episode.task for episode in read_episodes(out)}) == 3
    return out


def test_episodes_replay_with_arguments_of_this_machine(tmp_path):
    prompts = tmp_path / "mine.toml"
    prompts.write_text((PROMPT_SETS / "math" / "default.toml").read_text())
    made = "math-v0", "--arg", f"prompts={prompts}", "--policy", "random"
    played = envs("play", *made, "--out", tmp_path / "one.jsonl")
    assert played.exit_code == 0, played.output
    moved = prompts.rename(tmp_path / "moved.toml")
    assert "mine.toml: No such file" in envs("replay", tmp_path / "one.jsonl").stderr
    replayed = envs("replay", tmp_path / "one.jsonl", "--arg", f"prompts={moved}")
    assert replayed.exit_code == 0, replayed.stderr
    moved.write_text(moved.read_text().replace("You", "Thou"))
    other = envs("replay", tmp_path / "one.jsonl", "--arg", f"prompts={moved}")
    assert other.exit_code == 1 and "'Thou are the solver" in other.stderr


def test_stored_episodes_replay(played):
    replayed = envs("replay", played)
    assert replayed.exit_code == 0
    assert replayed.stdout == "ok  3 episodes replay exactly, to every decision\n"
    one = envs("replay", played, "--episode", 2)
    assert one.stdout.startswith("ok  1 episode")
    assert "no episode 3" in envs("replay", played, "--episode", 3).stderr


def test_an_episode_that_was_changed_does_not(played):
    episodes = list(read_episodes(played))
    episodes[1].turns[0].text += "!"
    write_episodes(played, episodes)
    replayed = envs("replay", played)
    assert replayed.exit_code == 1 and f"{played}: episode 1: event 2" in replayed.stderr
    other = envs("replay", played, "--episode", 0, "--arg", "rounds=1")
    assert other.exit_code == 1 and "event 2" in other.stderr


def test_an_episode_is_shown_up_to_an_event_and_played_on(played, tmp_path):
    first = next(iter(read_episodes(played)))
    there = envs("replay", played, "--at", 2)
    assert there.exit_code == 0 and "event 2 asks debater_0" in there.stdout
    assert first.turns[2].messages[0].content.strip() in there.stdout
    end = envs("replay", played, "--at", len(first.events))
    assert f"task {first.task}" in end.stdout
    out = tmp_path / "forks.jsonl"
    arguments = ["--at", 3, "--policy", "random", "--samples", 2, "--out", out]
    forked = envs("replay", played, *arguments)
    assert forked.exit_code == 0, forked.stderr
    forks = list(read_episodes(out))
    assert [fork.provenance["decision"] for fork in forks] == ["3", "3"]
    assert all(fork.turns[0].text == first.turns[0].text for fork in forks)
    assert len({fork.turns[-1].text for fork in forks} | {first.turns[-1].text}) == 3
    assert "--at" in envs("replay", played, "--policy", "random").stderr
    for option in (("--samples", 2), ("--out", out)):
        for where in ((), ("--at", 1)):
            refused = envs("replay", played, *where, *option)
            assert refused.exit_code == 2 and "--policy random" in refused.stderr
    assert "can be forked" in envs("replay", played, "--at", 99, "--policy", "random").stderr
