"""`check` says of every mistake what it is, in one line of words."""

from __future__ import annotations

import pytest

from mas_envs.errors import CheckFailed, MasError
from mas_envs.testing import PURE, check, faults
from tests.mas_envs import broken_envs

AGAIN = "seed 0 played otherwise again: event 0 shows a_0"

SAID = {
    "GlobalRandom": AGAIN,
    "Clock": AGAIN,
    "MutableDefault": AGAIN,
    "ChangesItsTask": "seed 0 played otherwise again: the episode's meta is",
    "RandomTool": "seed 0 played otherwise again: event 1 its result is",
    "TaskInSelf": "played otherwise among others: event 1 shows a_0",
    "SetOrder": "in another process: event 0: a_0 was shown something else than a_0 is now: ",
    "EmptyText": r"IndexError: list index out of range (broken_envs.py:",
    "MissingValue": "not 'NoneType' (broken_envs.py:",
    "NeverEnds": "asks for turn 4, of a_0; max_decisions is 3: end the episode by then, or set "
    "NeverEnds.max_decisions",
    "NeverEndsWithoutAnswer": "asks for turn 4",
    "CallsForEver": "called tool and others 10000 times in a row and asked nobody; does it end?",
    "UnknownAgent": "play() asks 'solver_0'; the team is ['a_0']",
    "ReturnsNumber": "play() returned 1.0, not an Outcome",
    "InfoOfSets": "info of the outcome: set has no place in an episode; use JSON values",
    "NoInfo": "the outcome's info is None, not a dictionary",
    "GradeIsBool": "the outcome's grade is True: it is no Grade",
    "GradeOfNoStatus": "Invalid enum value 'fine' - at `$.status`",
    "ParserGivesText": "it must give Parsed(value, status)",
    "ParserOfNoStatus": "it must give Parsed(value, status)",
    "ParserIsNone": "the parser of a_0 is 'boxed'; give a function",
    "ShowsNothing": "a_0 is shown []; expected a list of Messages",
    "ShowsOneMessage": "expected a list of Messages",
    "NoTokens": "max_tokens of a_0 is 0; give a number from 1 up",
    "ToolForOne": "a tool gave {'length': 1} for a batch of one call",
    "ToolFails": "RuntimeError: the index is gone (broken_envs.py:194), in a tool",
    "CallsWithText": "give a dictionary",
    "AsyncPlay": "write it as `def`, not `async def`",
    "Leaves": "SystemExit: enough (broken_envs.py:",
    "NoSuper": "let its __init__ take **common and call super().__init__(**common)",
    "TeamTooEarly": "cannot be made: AttributeError: 'TeamTooEarly' object has no attribute",
    "RolesOfText": "RolesOfText.roles is 'solver'; write it as ('solver',)",
    "NoAgents": "NoAgents has no agents; set roles",
    "Twins": "give each agent an id of its own",
    "Wants": "missing a required argument: 'size'",
}  # fmt: skip


def lines_of(name):
    return list(check(f"{broken_envs.__name__}:{name}", episodes=4))


@pytest.mark.parametrize("name", SAID)
def test_a_mistake_is_named(name):
    with pytest.raises(MasError) as caught:
        lines_of(name)
    told = str(caught.value)
    assert SAID[name] in told
    assert name in told and len(told) < 700
    if "otherwise" in told or "another process" in told:
        assert told.endswith(PURE)


def test_the_answer_that_broke_it_is_told():
    with pytest.raises(CheckFailed, match=r"after the answer '.*'; a model may write anything"):
        lines_of("MissingValue")


def test_what_is_right_passes():
    lines = lines_of("OneAgent")
    assert len(lines) == 8 and all(line.startswith("ok  ") for line in lines)


def test_what_is_allowed_and_perhaps_not_meant_is_noted():
    notes = [line for line in lines_of("NoCommon") if line.startswith("note")]
    assert len(notes) == 1 and "takes no tasks, prompts" in notes[0] and "**common" in notes[0]
    notes = [line for line in lines_of("Misspelt") if line.startswith("note")]
    assert notes == ["note  a_0 is shown {reader} as it stands in the prompts; nothing fills it"]


def test_a_play_that_spins_is_stopped(monkeypatch):
    monkeypatch.setattr(faults, "PATIENCE_S", 0.2)
    with pytest.raises(CheckFailed, match=r"play\(\) has run for 0.2 s without asking anybody"):
        lines_of("Spins")
