"""TorchRL's own wrapper plays workflows, with what we tell it about text."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import warnings

import pytest
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from mas_envs.adapters.torchrl import register_torchrl_specs
from mas_envs.errors import UserError
from mas_envs.protocol import role_of
from tests.mas_envs.adapter_cases import BLOCKS, TEAMS, aec_episode, contents_of, says

torchrl = pytest.mark.skipif(
    importlib.util.find_spec("torchrl") is None, reason="torchrl is not installed"
)


def test_without_torchrl_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrl", None)
    with pytest.raises(UserError, match="pip install torchrl"):
        register_torchrl_specs()


@pytest.fixture
def wrap():
    register_torchrl_specs()
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    def wrapped(env):
        with warnings.catch_warnings():  # it is tested by its authors with PettingZoo 1.24.3
            warnings.filterwarnings("ignore", message="PettingZoo in TorchRL is tested using")
            return PettingZooWrapper(env, use_mask=True)

    return wrapped


@torchrl
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("make", [make for make, _ in TEAMS])
def test_torchrls_wrapper_passes_its_own_check(make, parallel, wrap):
    from torchrl.envs import check_env_specs

    env = make()
    check_env_specs(wrap(turn_based_aec_to_parallel(env) if parallel else env))


@torchrl
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("make", [make for make, _ in TEAMS])
def test_torchrls_wrapper_earns_and_shows_what_the_aec_view_does(make, parallel, wrap):
    from tensordict import NonTensorStack

    direct, env = make(), make()
    wrapped = wrap(turn_based_aec_to_parallel(env) if parallel else env)
    assert set(wrapped.group_map) == {
        role_of(agent) if parallel else agent for agent in env.possible_agents
    }
    for case in range(8):
        seen, returns, _, turns = aec_episode(direct, case, case)
        shown = {agent: [] for agent in env.possible_agents}
        totals = dict.fromkeys(env.possible_agents, 0.0)
        step = wrapped.reset(seed=case)
        while not step["done"].item():
            actor = env.agent_selection
            for group, agents in wrapped.group_map.items():
                texts = ["not asked"] * len(agents)
                if actor in agents:
                    place = agents.index(actor)
                    observation = {
                        "messages": step.get((group, "observation", "messages"))[place].data,
                        "turn": step[group, "observation", "turn"][place].item(),
                    }
                    shown[actor].append(observation)
                    texts[place] = says(env, case, actor, contents_of(observation))
                if not parallel:  # then the mask says who is asked
                    assert step[group, "mask"].tolist() == [actor in agents]
                step[group, "action"] = NonTensorStack(*texts)
            step = wrapped.step(step)["next"]
            for group, agents in wrapped.group_map.items():
                for agent, reward in zip(agents, step[group, "reward"].flatten().tolist(),
                                         strict=True):  # fmt: skip
                    totals[agent] += reward
        assert shown == seen
        assert totals == pytest.approx(returns)
        assert [turn.text for turn in env.episode.turns] == [turn.text for turn in turns]


WHY = """
import gymnasium, mas_envs
from mas_envs.spaces import Conversation, Language
from torchrl.data import NonTensor
from torchrl.envs.libs.gym import register_gym_spec_conversion
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

try:
    PettingZooWrapper(mas_envs.make("math-v0"), use_mask=True)
except KeyError as error:
    print(error)
for space in (Language, Conversation):
    register_gym_spec_conversion(space)(lambda space, **_: NonTensor((), example_data=""))
env = PettingZooWrapper(mas_envs.make("math-v0"), use_mask=True)
try:
    env.step(env.rand_action(env.reset()))
except NotImplementedError as error:
    print(error)
"""


@torchrl
def test_torchrl_alone_does_not_play_text():
    """The two reasons for `register_torchrl_specs`; if this fails, see what is still needed."""
    run = subprocess.run([sys.executable, "-c", WHY], capture_output=True, text=True)
    assert re.search(r"No conversion tool could be found .*Language", run.stdout), run.stderr
    assert "Invalid type of data NonTensorData" in run.stdout, run.stderr


@torchrl
@pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL is tested using")
def test_the_documented_torchrl_example_runs():
    (block,) = [block for block in BLOCKS if "torchrl" in block]
    variables = {}
    exec(block, variables)
    assert variables["asked"] == ["solver_0"]
    assert variables["messages"][-1]["role"] == "user"
    assert variables["step"]["verifier_0", "mask"].item()
