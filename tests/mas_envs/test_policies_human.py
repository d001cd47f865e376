"""A person at a real pseudo-terminal, and lines from a pipe or a file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys

import msgspec
import pytest

import mas_envs
from mas_envs import Message, Policy, Request, Sampling, TaskSet, collect
from mas_envs.errors import UserError
from mas_envs.policies.human import HOW, HumanPolicy
from mas_envs.policies.scripted import ScriptedPolicy

REQUEST = Request(
    agent="solver_0", role="solver", messages=(Message("system", "Be brief."),
    Message("user", "1+1=?")), sampling=Sampling(), seed=0,
)  # fmt: skip


class Terminal:
    """A pseudo-terminal as standard input: `type` is the keyboard."""

    def __init__(self, monkeypatch):
        self.keyboard, self.far_end = os.openpty()
        self.stdin = os.fdopen(self.far_end, "r")
        monkeypatch.setattr(sys, "stdin", self.stdin)

    def type(self, text):
        os.write(self.keyboard, text.encode())

    def hang_up(self):
        if self.keyboard >= 0:
            os.close(self.keyboard)
        self.keyboard = -1


@pytest.fixture
def terminal(monkeypatch):
    opened = Terminal(monkeypatch)
    yield opened
    opened.hang_up()
    opened.stdin.close()


def act(policy, request=REQUEST):
    return asyncio.run(policy.act(request))


def test_a_line(terminal, capsys):
    terminal.type("\\boxed{2} é 中\n")
    policy = HumanPolicy()
    assert isinstance(policy, Policy)
    response = act(policy)
    assert (response.text, response.model) == ("\\boxed{2} é 中", "human")
    assert response.ids is response.log_probs is None
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "", "──── solver_0 · task 0, sample 0 ────", "system", "Be brief.", "user", "1+1=?", HOW,
        "solver_0> ",
    ]  # fmt: skip


def test_several_lines(terminal):
    terminal.type(".\nfirst\n\n  second .\n..\n.\nnext\n")
    policy = HumanPolicy()
    assert act(policy).text == "first\n\n  second .\n.."
    assert act(policy).text == "next"


def test_an_empty_answer_is_typed_on_purpose(terminal):
    terminal.type("\n  \nnot empty\n.\n.\n")
    policy = HumanPolicy()
    assert [act(policy).text, act(policy).text] == ["not empty", ""]


def test_only_what_is_new_is_shown(terminal, capsys):
    policy = HumanPolicy()

    def shown(*contents, agent="solver_0", key=(0, 0, 0)):
        terminal.type("x\n")
        messages = tuple(Message("user", content) for content in contents)
        act(policy, msgspec.structs.replace(REQUEST, messages=messages, agent=agent, key=key))
        lines = capsys.readouterr().out.splitlines()
        assert (HOW in lines) == (contents == ("one",))
        return [line for line in lines if line in ("one", "two", "three", "other")]

    assert shown("one") == ["one"]
    assert shown("one", "two", "three") == ["two", "three"]
    assert shown("one", "two", "three") == ["three"]
    assert shown("one", "other", "three") == ["other", "three"]
    assert shown("one", "two", agent="verifier_0") == ["one", "two"]
    assert shown("one", "two", key=(1, 0, 0)) == ["one", "two"], "another episode"


def test_nothing_moves_the_cursor(terminal, capsys):
    terminal.type("x\n")
    nasty = "a\x1b[2Jb\rc\x00d\u202ee\tf\ng"
    act(
        HumanPolicy(),
        msgspec.structs.replace(REQUEST, messages=(Message("user\x1b]0;t\x07", nasty),)),
    )
    out = capsys.readouterr().out
    assert "a\\x1b[2Jb\\x0dc\\x00d\\x202ee\tf\ng\n" in out
    assert "user\\x1b]0;t\\x07\n" in out


def test_parallel_questions_are_asked_one_by_one_while_others_go_on(terminal, capsys):
    policies = [HumanPolicy()] * 2 + [HumanPolicy()]

    async def ask():
        answers = [
            asyncio.create_task(policy.act(msgspec.structs.replace(REQUEST, agent=f"solver_{i}")))
            for i, policy in enumerate(policies)
        ]
        for number in range(3):
            while f"solver_{number}> " not in capsys.readouterr().out:
                await asyncio.sleep(0.005)  # the loop runs while nobody types
            assert [answer.done() for answer in answers] == [i < number for i in range(3)]
            terminal.type(f"answer {number}\n")
            await answers[number]
        return [answer.result().text for answer in answers]

    for _ in range(2):  # the lock of the first loop would raise in the second
        assert asyncio.run(ask()) == ["answer 0", "answer 1", "answer 2"]


def test_a_question_that_was_given_up_takes_no_answer(terminal):
    policy = HumanPolicy()

    async def two():
        first = asyncio.create_task(policy.act(REQUEST))
        await asyncio.sleep(0.02)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not asyncio.get_running_loop().remove_reader(terminal.far_end), "still watched"
        terminal.type("for the second\n")
        return (await policy.act(REQUEST)).text

    assert asyncio.run(two()) == "for the second"


@pytest.mark.parametrize("typed", ["\x04", ".\nhalf\n\x04"])
def test_ctrl_d_is_told(terminal, typed):
    terminal.type(typed)
    with pytest.raises(UserError, match=r"input ended .* answer for solver_0"):
        act(HumanPolicy())


def test_a_terminal_that_is_gone(terminal):
    terminal.hang_up()
    with pytest.raises(UserError, match="input ended"):
        act(HumanPolicy())


@pytest.mark.parametrize("stdin", [None, io.StringIO("")])
def test_no_input_at_all(monkeypatch, stdin):
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(UserError, match="input ended"):
        act(HumanPolicy())


def test_text_in_memory_and_files(monkeypatch, tmp_path):
    path = tmp_path / "answers.txt"
    path.write_bytes(b"one\r\n\xfftwo\nthree")  # Windows' ends, no UTF-8, no end
    expected = ["one", "\ufffdtwo", "three"]
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        policy = HumanPolicy()
        assert [act(policy).text for _ in expected] == expected
        with pytest.raises(UserError, match="input ended"):
            act(policy)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo"))
    assert [act(HumanPolicy()).text for _ in "12"] == ["one", "two"]


def test_policies_share_what_was_typed(monkeypatch):
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    with os.fdopen(reader) as pipe, os.fdopen(writer):
        monkeypatch.setattr(sys, "stdin", pipe)
        assert [act(HumanPolicy()).text for _ in "12"] == ["one", "two"]


# ---- in a rollout -------------------------------------------------------------------------------

TASKS = TaskSet([("1+1=?", "2", {})])


def test_a_person_verifies(terminal, capsys):
    terminal.type("no\n<verify>reject</verify>\n")
    drafts = iter([r"\boxed{3}", r"\boxed{2}"])
    policies = {"solver": ScriptedPolicy(lambda r: next(drafts)), "verifier": HumanPolicy()}
    terminal.type("<verify>approve</verify>\n")
    env = mas_envs.make("math-v0", tasks=TASKS, max_rounds=2)
    (episode,) = asyncio.run(collect(env, policies, TASKS))
    assert episode.status == "done"
    assert next(turn.text for turn in episode.turns if turn.role == "verifier") == "no"
    assert r"\boxed{3}" in capsys.readouterr().out


def test_the_end_of_the_input_stops_the_rollout(terminal):
    terminal.type("\x04")
    with pytest.raises(UserError, match="input ended"):
        asyncio.run(collect(mas_envs.make("math-v0", tasks=TASKS), HumanPolicy(), TASKS))


SCRIPT = """
import asyncio, fcntl, sys, termios
import mas_envs
from mas_envs.policies.human import HumanPolicy
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
tasks = mas_envs.TaskSet([("1+1=?", "2", {})])
env = mas_envs.make("math-single-v0", tasks=tasks)
(episode,) = asyncio.run(mas_envs.collect(env, HumanPolicy(), tasks))
print("reward", episode.reward)
"""


def start(stdin):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=stdin, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def test_in_a_pipe():
    process = start(subprocess.PIPE)
    out, error = process.communicate(b"\\boxed{2}\n", timeout=60)
    assert (process.returncode, error) == (0, b"")
    assert out.endswith(b"solver_0> reward 1.0\n")
    assert b"\x1b" not in out, "no colours in a pipe"
    process = start(subprocess.PIPE)
    _, error = process.communicate(b"", timeout=60)
    assert process.returncode == 1
    assert b"UserError: the input ended" in error.splitlines()[-1]


def test_ctrl_c_ends_the_process_while_it_waits():
    keyboard, far_end = os.openpty()
    process = start(far_end)
    os.close(far_end)
    try:
        seen = b""
        while b"> " not in seen:
            part = os.read(process.stdout.fileno(), 1000)
            assert part, process.stderr.read().decode()
            seen += part
        os.write(keyboard, b"half an ans\x03")
        _, error = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
        assert error.splitlines()[-1] == b"KeyboardInterrupt"
        assert b"Fatal" not in error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
        os.close(keyboard)
