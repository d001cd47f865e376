"""Bad input: every mistake is one line that names the argument and what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mas_envs.errors import UnknownName, UserError
from mas_train.advantages import (
    PRESETS,
    SEPARATE,
    advantages,
    anchors,
    check_choices,
    counterfactual,
    gae,
    needs,
    whiten,
)


def call(rewards=(1.0, 0.0), **options):
    n = len(rewards) if hasattr(rewards, "__len__") else 2
    columns = {"prompt": [0] * n, "agent": ["a"] * n, "trajectory": list(range(n))}
    columns |= {name: options.pop(name) for name in list(columns) if name in options}
    return advantages(rewards, *columns.values(), **options)


STATE = "a dict role → running mean"
CASES = {
    "NaN": ({"rewards": [1, np.nan]},
            "the reward of row 1 is nan; mark rows without a reward known=False"),
    "infinite": ({"rewards": [-np.inf, 1]},
                 "the reward of row 0 is -inf; mark rows without a reward known=False"),
    "None among them": ({"rewards": [1, None]},
                        "the reward of row 1 is nan; mark rows without a reward known=False"),
    "None": ({"rewards": None}, "rewards must be numbers of shape [N], not None"),
    "two-dimensional": ({"rewards": [[1, 0], [0, 1]]},
                        "rewards (2, 2) and known (2, 2) must both have shape [N]"),
    "one number": ({"rewards": 1.0}, "rewards () and known () must both have shape [N]"),
    "known": ({"known": [True]}, "rewards (2,) and known (1,) must both have shape [N]"),
    "known as text": ({"known": ["True", "False"]}, "'known' must be True or False for each row"),
    "known with NaN": ({"known": [1.0, np.nan]}, "'known' must be True or False for each row"),
    "known with None": ({"known": [True, None]}, "'known' must be True or False for each row"),
    "beyond squaring": ({"rewards": [1, -1e200]},
                        "the reward of row 1 is -1e+200; no more than 1e+150 either way"),
    "text": ({"rewards": ["1", "0"]}, "rewards must be an array of numbers: <U1 is none"),
    "empty group": ({"group": ""},
                    "unknown estimator group ''; known: agent, anchor, prompt, turn"),
    "group as a list": ({"group": ["prompt", "agent"]}, "estimator group must be a text like "
                        "'prompt+agent', not ['prompt', 'agent']"),
    "agent": ({"agent": ["a"]}, "'agent' has 1 rows, the rewards have 2"),
    "prompt": ({"prompt": [0, 1, 2]}, "'prompt' has 3 rows, the rewards have 2"),
    "trajectory in two": ({"trajectory": [[0], [1]]},
                          "'trajectory' must have shape [N], not (2, 1)"),
    "no agent": ({"agent": None}, "'agent' must be one label per row, not None"),
    "no turn": ({"group": "prompt+turn"},
                "the estimator groups by 'turn', so the 'turn' of each row is needed"),
    "at_grpo without turns": ({"preset": "at_grpo"},
                "the estimator groups by 'turn', so the 'turn' of each row is needed"),
    "no lengths": ({"preset": "reinforce_pp"},
                   "estimator 'reinforce_pp' needs 'lengths': the number of response "
                   "tokens of each row [N]"),
    "no anchor": ({"preset": "gigpo"},
                  "estimator 'gigpo' needs 'anchor': a label of what the agent saw at "
                  "each row [N], see anchors()"),
    "no state": ({"preset": "rae"}, f"estimator 'rae' needs 'state': {STATE}, empty at first, kept "
                 "from batch to batch"),
    "short lengths": ({"preset": "reinforce_pp", "lengths": [1]},
                      "'lengths' has 1 rows, the rewards have 2"),
    "negative lengths": ({"preset": "reinforce_pp", "lengths": [1, -1]},
                         "'lengths' must be numbers of tokens: integers that are not negative"),
    "fractional lengths": ({"preset": "reinforce_pp", "lengths": [1.5, 1]},
                           "'lengths' must be numbers of tokens: integers that are not negative"),
    "short anchor": ({"preset": "gigpo", "anchor": [1]}, "'anchor' has 1 rows, the rewards have 2"),
    "state of another kind": ({"preset": "rae", "state": [0.5]},
                              f"state must be {STATE}, not list"),
    "state with NaN": ({"preset": "rae", "state": {"a": np.nan}},
                       "the running mean of 'a' in state is nan, not a number"),
    "state with text": ({"preset": "rae", "state": {"a": "x"}},
                        "the running mean of 'a' in state is 'x', not a number"),
    "anchor weight": ({"preset": "gigpo", "anchor": [1, 1], "anchor_weight": -1},
                      "anchor_weight -1 must be a number that is not negative"),
    "anchor weight NaN": ({"preset": "gigpo", "anchor": [1, 1], "anchor_weight": np.nan},
                          "anchor_weight nan must be a number that is not negative"),
    "decay": ({"preset": "rae", "state": {}, "decay": 1.0},
              "decay 1.0 must be at least 0 and below 1"),
    "unused decay": ({"decay": 0.5}, "estimator 'drmas' makes no use of 'decay'; leave it out"),
    "unused weight": ({"anchor_weight": 0.5},
                      "estimator 'drmas' makes no use of 'anchor_weight'; leave it out"),
    "ppo": ({"preset": "ppo"},
            "estimator 'ppo' is not one of advantages(); call gae() instead"),
    "counterfactual": ({"preset": "counterfactual"}, "estimator 'counterfactual' is not one of "
                       "advantages(); call counterfactual() instead"),
    "ppo with a choice": ({"preset": "ppo", "std": "none"},
                          "estimator 'ppo' has no 'std'; leave 'none' out"),
    "running": ({"mean": "running"},
                "estimator mean 'running' is kept per agent, so the group must be "
                "'agent', not 'prompt+agent'; take preset 'rae'"),
    "rae in groups": ({"preset": "rae", "group": "prompt"}, "estimator mean 'running' is kept per "
                      "agent, so the group must be 'agent', not 'prompt'; take preset 'rae'"),
    "gigpo running": ({"preset": "gigpo", "mean": "running", "group": "agent"}, "estimator mean "
                      "'running' is kept per agent, so the group must be 'agent', not "
                      "'prompt+agent+anchor'; take preset 'rae'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    options, message = CASES[name]
    with pytest.raises(UserError) as caught:
        call(**options)
    assert str(caught.value) == message


def test_rewards_that_are_no_numbers():
    with pytest.raises(UserError, match="rewards must be an array of numbers: "):
        call(["good", "bad"])
    with pytest.raises(UserError, match="'agent' must be one label per row: "):
        call(agent=[["a"], ["b", "c"]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "dr_mas"}, "unknown estimator preset 'dr_mas'; did you mean 'drmas'?"),
        ({"preset": "pp0"}, "unknown estimator preset 'pp0'; did you mean 'ppo'?"),
        ({"unit": "trajectry"}, "did you mean 'trajectory'?"),
        ({"group": "prompt+agnet"}, "unknown estimator group 'agnet'; did you mean 'agent'?"),
        ({"mean": "globl"}, "did you mean 'global'?"),
        ({"std": "populaton"}, "did you mean 'population'?"),
    ],
)
def test_unknown_names_suggest_the_nearest(options, message):
    with pytest.raises(UnknownName) as caught:
        call(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["lengths", "anchor", "state"])
def test_what_an_estimator_does_not_need_is_refused(preset, name):
    given = {"lengths": [1, 2], "anchor": [1, 2], "state": {}}
    wanted = {one: value for one, value in given.items() if one in needs(preset)}
    assert call(turn=[0, 0], preset=preset, **wanted).shape == (2,)
    if name not in wanted:
        message = f"estimator {preset!r} makes no use of {name!r}; leave it out"
        with pytest.raises(UserError, match=message):
            call(turn=[0, 0], preset=preset, **wanted, **{name: given[name]})


def test_needs():
    assert needs("drmas") == frozenset()
    assert needs("reinforce_pp") == {"lengths"}
    assert needs("gigpo") == {"anchor"}
    assert needs("rae") == {"state"}
    assert needs("rae", std="tokens") == {"state", "lengths"}
    assert needs("drmas", group="prompt+anchor") == {"anchor"}
    assert needs("ppo") == needs("counterfactual") == frozenset()
    with pytest.raises(UnknownName):
        needs("dr_mas")


def test_estimators_of_their_own_are_known_names():
    assert set(SEPARATE) == {"ppo", "counterfactual"}
    assert all(check_choices(name) is None for name in SEPARATE)
    assert all(check_choices(name) == choices for name, choices in PRESETS.items())


NUMBERS = "'lengths' must be numbers of tokens: integers that are not negative"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: gae([1], [0.0], [2]), "'values' has shape (1,), but the lengths add up to 2"),
        (lambda: gae([1], [[0.0]], [1]), "'values' has shape (1, 1), but the lengths add up to 1"),
        (lambda: gae([1, 0], [0.0], [1]), "'lengths' has 1 rows, the rewards have 2"),
        (lambda: gae([1], [0.0], [-1]), NUMBERS),
        (lambda: gae([1], [0.0], None), "'lengths' must be one label per row, not None"),
        (lambda: gae([1], [0.0], [1], gamma=1.1), "gamma 1.1 must be between 0 and 1"),
        (lambda: gae([1], [0.0], [1], lam=np.nan), "lam nan must be between 0 and 1"),
        (lambda: gae([np.nan], [0.0], [1]),
         "the reward of row 0 is nan; mark rows without a reward known=False"),
        (lambda: gae([1, 1, 1], [0.0, 0.0, np.inf], [2, 0, 1]),
         "'values' of row 2 has inf, which is not a finite number"),
        (lambda: whiten([0.0, np.nan], [1, 1], ["a", "b"]),
         "'values' of row 1 has nan, which is not a finite number"),
        (lambda: whiten([0.0], [1], ["a"], known=[True, True]),
         "known (2,) must have shape [N] like agent (1,)"),
        (lambda: whiten([0.0], [1], ["a", "b"]), "'lengths' has 1 rows, the agents have 2"),
        (lambda: whiten([0.0], [1], None), "'agent' must be one label per row, not None"),
        (lambda: counterfactual([1, 0], [0]), "'decision' has 1 rows, the rewards have 2"),
        (lambda: counterfactual([1, 0], None), "'decision' must be one label per row, not None"),
        (lambda: counterfactual(None, [0]), "rewards must be numbers of shape [N], not None"),
        (lambda: counterfactual([np.nan, 0], [0, 0]),
         "the reward of row 0 is nan; mark rows without a reward known=False"),
        (lambda: anchors([[1, 2]], ["a", "b"]), "'agent' has 2 rows, the prompt ids have 1"),
        (lambda: anchors([[1], [0.5]], ["a", "b"]),
         "the prompt ids of row 1 must be an array of integers"),
        (lambda: anchors([[1], [[1]]], ["a", "b"]),
         "the prompt ids of row 1 must be an array of integers"),
    ],
)  # fmt: skip
def test_the_message_of_the_other_functions(function, message):
    with pytest.raises(UserError) as caught:
        function()
    assert str(caught.value) == message


def test_needs_no_torch():
    code = "import sys, mas_train.advantages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
