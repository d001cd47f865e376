"""debate-v0, vote-v0, proposer-solver-v0: short files that show what a workflow can do."""

from __future__ import annotations

import ast
import inspect
import itertools

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mas_envs
import mas_envs.debate
import mas_envs.proposer_solver
import mas_envs.vote
from mas_envs import TaskSet, row_rewards
from mas_envs.episodes.metrics import summary
from mas_envs.errors import UserError
from mas_envs.grading.ballot import ballot
from tests.mas_envs.env_cases import ARITH, Talk, collect, play

HALF = TaskSet([("What is 1/2 of 1?", r"\frac{1}{2}", {})])


def box(value):
    return rf"hence \boxed{{{value}}}"


def shown(env, agent=None):
    return env.observe(agent or env.agent_selection)["messages"][-1]["content"]


@pytest.mark.parametrize("module", ["debate", "vote", "proposer_solver"])
def test_an_example_stays_short(module):
    """Without what documentation is made from, each fits a screen or two."""
    source = inspect.getsource(getattr(mas_envs, module))
    tree = ast.parse(source)
    described = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            described += node.body[0].end_lineno - node.body[0].lineno + 1
    assert described > 0
    assert len(source.splitlines()) - described <= 70


# ---- debate --------------------------------------------------------------------------------------


def debate(**kwargs):
    return mas_envs.make("debate-v0", tasks=HALF, **kwargs)


def test_a_round_is_frozen_before_anybody_speaks():
    env = debate()
    env.reset(seed=0)
    frozen = shown(env, "debater_1")
    assert HALF[0].question in frozen
    env.step("<think>secret</think> I am the first. " + box(1))
    assert env.agent_selection == "debater_1"
    assert shown(env) == frozen
    env.step(box(2))
    assert "secret" not in shown(env, "debater_1")


def test_each_sees_the_latest_of_the_others_and_the_judge_sees_all():
    env = debate(debaters=3, rounds=3)
    env.reset(seed=0)
    agents = [f"debater_{n}" for n in range(3)]
    for round_ in range(3):
        for n, agent in enumerate(agents):
            assert env.agent_selection == agent
            said = [f"{other} said:\n{other} in {round_ - 1}" for other in agents]
            for other in range(3):
                assert (said[other] in shown(env)) == (round_ > 0 and other != n)
            assert f"in {round_ - 2}" not in shown(env)
            env.step(f"{agent} in {round_}")
    assert env.agent_selection == "judge_0"
    assert all(f"{agent} said:\n{agent} in 2" in shown(env) for agent in agents)
    assert "in 1" not in shown(env)
    env.step(box("0.5"))
    assert (env.episode.reward, env.episode.grade.correct) == (1.0, True)
    assert [turn.batch for turn in env.episode.turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize(("debaters", "rounds"), [(2, 1), (2, 4), (5, 1), (4, 3)])
def test_numbers_of_debaters_and_rounds(debaters, rounds):
    env = debate(debaters=debaters, rounds=rounds)
    team = [f"debater_{n}" for n in range(debaters)]
    assert env.possible_agents == [*team, "judge_0"]
    assert play(env, *["x"] * 99) == [*team * rounds, "judge_0"]
    assert len(env.episode.turns) == env.max_decisions


def test_the_judge_decides_alone():
    """Neither the debaters' agreement nor their last word makes an answer."""
    env = debate(rounds=1)
    play(env, box("1/2"), box("1/2"), box("3"))
    assert (env.episode.reward, env.episode.info) == (0.0, {"answers": ["1/2", "1/2"]})
    play(env, box("3"), "nothing", box("0.5"))
    assert (env.episode.reward, env.episode.info) == (1.0, {"answers": ["3", None]})
    play(env, box("1/2"), box("1/2"), "debater_0 is right")
    assert (env.episode.reward, env.episode.grade.status) == (0.0, "no_answer")


@pytest.mark.parametrize(
    "kwargs",
    [{"debaters": 1}, {"debaters": 2.0}, {"rounds": 0}, {"debaters": True}, {"rounds": "1"}],
)  # fmt: skip
def test_bad_arguments_of_debate(kwargs):
    with pytest.raises(UserError, match="it must be a whole number"):
        debate(**kwargs)


# ---- vote ----------------------------------------------------------------------------------------


def vote(*texts, **kwargs):
    env = mas_envs.make("vote-v0", tasks=HALF, solvers=len(texts), **kwargs)
    env.reset(seed=0)
    frozen = {agent: shown(env, agent) for agent in env.possible_agents}
    assert len(set(frozen.values())) == 1
    for agent, text in zip(env.possible_agents, texts, strict=True):
        assert env.agent_selection == agent
        assert shown(env) == frozen[agent]
        env.step(text)
    assert {turn.batch for turn in env.episode.turns} == {0}
    return env.episode


@pytest.mark.parametrize(
    ("values", "reward", "votes"),
    [
        (["3", "1/2", r"\frac{1}{2}"], 1.0, [["3", 1], ["1/2", 2]]),
        (["3", "3", "1/2"], 0.0, [["3", 2], ["1/2", 1]]),
        (["0.5", "½", "3", "3", r"\dfrac12"], 1.0, [["0.5", 3], ["3", 2]]),
        (["1/2", "3"], 1.0, [["1/2", 1], ["3", 1]]),
        (["3", "1/2"], 0.0, [["3", 1], ["1/2", 1]]),
        (["4", "1/2", "3", "3", "0.50"], 1.0, [["4", 1], ["1/2", 2], ["3", 2]]),
        (["x+1", "x + 1", "1/2"], 0.0, [["x+1", 2], ["1/2", 1]]),
        (["1/2"], 1.0, [["1/2", 1]]),
    ],
)
def test_the_majority_wins_and_a_tie_goes_to_the_first_given(values, reward, votes):
    episode = vote(*map(box, values))
    assert episode.info == {"answers": values, "votes": votes}
    assert episode.reward == reward


def test_whoever_has_no_box_does_not_vote():
    episode = vote("1/2", box("1/2"), r"\boxed{", "no", box(""))
    assert episode.info == {"answers": [None, "1/2", None, None, None], "votes": [["1/2", 1]]}
    assert episode.reward == 1.0


def test_nobody_has_a_box():
    episode = vote("1/2", r"\boxed{1/2", "", invalid_penalty=0.5)
    assert episode.info == {"answers": [None] * 3, "votes": []}
    assert (episode.reward, episode.grade.correct) == (0.0, False)
    assert row_rewards(episode) == [-0.5] * 3


SAME = [
    ["1/2", "0.5", r"\frac{1}{2}", r"\frac12", r"\dfrac{1}{2}", "½", " 1 / 2 ", "0.50", "$.5$"],
    ["1000", "1,000", "1000.0", "10^3", r"1{,}000", "1 000"],
    ["-3", "−3", r"\left(-3\right)", "-3."], ["x+1", "x + 1"],
    [r"\text{yes}", "yes"], ["(1, 2)", "(1,2)", r"\left(1,2\right)"],
]  # fmt: skip


def test_ballots_of_equal_answers_are_equal_and_of_others_are_not():
    for same in SAME:
        assert len({ballot(answer) for answer in same}) == 1, same
    first = [ballot(same[0]) for same in SAME]
    assert len(set(first)) == len(first)
    apart = [
        "1",
        "-1",
        "1/3",
        "0.3333333333",
        "",
        "x",
        "X",
        "x=1",
        "1,2",
        "12",
        "(1,2]",
        "9" * 9999,
    ]
    assert len({ballot(answer) for answer in apart}) == len(apart)


@given(st.text(max_size=60) | st.text("0123456789.,^{}()/\\-+ e!frac", max_size=40))
@settings(deadline=None)
def test_any_text_is_a_ballot(text):
    assert ballot(text) == ballot(text)
    assume(not text.endswith("\\"))  # before a space it is another command
    assert ballot(f" {text} ") == ballot(text)


@pytest.mark.parametrize(
    "text", ["9^{9^{9^9}}", "(" * 9999, "1/0", "9" * 5000, "1e999999", "2^{-99999}"]
)
def test_ballots_that_are_too_much_are_text(text):
    assert isinstance(ballot(text), str)


@given(st.permutations(["1/2", "0.5", "3", "3", "4"]))
@settings(deadline=None, max_examples=20)
def test_the_order_matters_in_a_tie_only(order):
    episode = vote(*map(box, order))
    tie = next(value for value in order if value != "4")
    assert episode.reward == float(tie != "3")
    assert sum(count for _, count in episode.info["votes"]) == 5


def test_solvers_may_be_shown_different_texts(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[solver]\nuser = "{question}"\n[solver_1]\nuser = "Guess: {question}"\n')
    env = mas_envs.make("vote-v0", tasks=HALF, prompts=str(path))
    env.reset(seed=0)
    assert [shown(env, agent) for agent in env.possible_agents] == [
        HALF[0].question, f"Guess: {HALF[0].question}", HALF[0].question,
    ]  # fmt: skip


@pytest.mark.parametrize("solvers", [0, -1, 1.5, "3", None, True])
def test_bad_numbers_of_solvers(solvers):
    for id in ("vote-v0", "proposer-solver-v0"):
        with pytest.raises(UserError, match="solvers"):
            mas_envs.make(id, solvers=solvers)


# ---- proposer and solvers ------------------------------------------------------------------------

PROBLEM = "Nice: <problem>What is 0.25 + 0.25?</problem>"


def propose(*texts, tasks=HALF, **kwargs):
    env = mas_envs.make("proposer-solver-v0", tasks=tasks, **kwargs)
    assert play(env, *texts)[0] == "proposer_0"
    return env


@pytest.mark.parametrize(
    ("right", "proposer"),
    [([], 0.0), ([2], 0.5), ([0, 3], 1.0), ([1, 2, 3], 0.5), ([0, 1, 2, 3], 0.0)],
)
def test_each_turn_has_a_reward_of_its_own(right, proposer):
    env = propose(PROBLEM, *(box("0.5" if n in right else "7") for n in range(4)))
    solvers = [float(n in right) for n in range(4)]
    episode = env.episode
    assert episode.reward == 0.0
    assert [turn.reward for turn in episode.turns] == [proposer, *solvers]
    assert row_rewards(episode) == [proposer, *solvers]
    assert env.rewards == dict(zip(env.possible_agents, [proposer, *solvers], strict=True))
    assert episode.info == {"problem": "What is 0.25 + 0.25?", "solved": len(right) / 4}
    assert episode.grade.correct == (0 in right)
    assert [turn.batch for turn in episode.turns] == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(("solvers", "right"), [(s, r) for s in (1, 2, 3, 5) for r in range(s + 1)])
def test_the_proposers_reward_is_what_the_module_says(solvers, right):
    env = propose(
        PROBLEM, *(box("0.5" if n < right else "7") for n in range(solvers)), solvers=solvers
    )
    assert env.episode.turns[0].reward == 1 - abs(2 * right / solvers - 1)


def test_solvers_see_the_new_problem_only():
    env = propose(PROBLEM)
    for agent in env.possible_agents[1:]:
        assert "What is 0.25 + 0.25?" in shown(env, agent)
        assert HALF[0].question not in shown(env, agent)
    env.reset(seed=0)
    assert HALF[0].question in shown(env)
    assert r"Answer: \frac{1}{2}" in shown(env)


@pytest.mark.parametrize(
    "text", ["", "What is 1/4 + 1/4?", "<problem>What", "<problem> </problem>"]
)
def test_no_problem_is_proposed(text):
    env = propose(text, "never asked", invalid_penalty={"proposer": 0.25})
    assert len(env.episode.turns) == 1
    assert env.episode.reward == 0.0
    assert row_rewards(env.episode) == [-0.25]
    assert env.rewards == {"proposer_0": -0.25} | {f"solver_{n}": 0.0 for n in range(4)}
    assert (env.episode.grade.correct, env.episode.grade.status) == (False, "no_answer")


def test_penalties_stand_beside_what_is_earned():
    env = propose(PROBLEM, box("0.5"), "no box", box("7"), box("0.5"), invalid_penalty=0.125)
    assert row_rewards(env.episode) == [1.0, 1.0, -0.125, 0.0, 1.0]


def test_of_several_golds_the_first_is_told():
    env = propose(PROBLEM, *[box("1/2"), box("2/4"), box("3"), box("5")],
                  tasks=TaskSet([("q", ["5", "0.5"], {})]))  # fmt: skip
    assert "Answer: 5\n" in env.episode.turns[0].messages[0].content
    assert row_rewards(env.episode) == [0.5, 1.0, 1.0, 0.0, 1.0]


class Knows(Talk):
    """Solvers are right in the first sample of each task and wrong in the others."""

    def __init__(self, tasks):
        self.golds = [task.answer for task in tasks]

    async def act(self, request):
        group, sample, turn = request.key
        text = PROBLEM if turn == 0 else box(-7 if sample else self.golds[group])
        return msgspec.structs.replace(await super().act(request), text=text)


def test_the_benchmarks_numbers_come_from_the_grades():
    """The team's reward is 0 whoever is right; avg@k must not read the reward."""
    env = mas_envs.make("proposer-solver-v0", tasks=ARITH)
    numbers = summary(collect(env, env.tasks, Knows(env.tasks), samples=2), k=2)
    assert numbers["avg@2"]["value"] == 50.0
    assert numbers["pass@2"]["value"] == 100.0
    assert (numbers["reward"], numbers["problem"], numbers["undecided"]) == (0.0, None, 0)


def test_rows_of_the_trainer_have_the_turns_rewards():
    from mas_train.experience.rows import episode_rows

    env = mas_envs.make("proposer-solver-v0", tasks=ARITH, invalid_penalty=0.25)
    episodes = collect(env, env.tasks, Knows(env.tasks), samples=2) + collect(env, env.tasks)
    rows = episode_rows(episodes)
    assert rows.reward.tolist() == list(itertools.chain(*map(row_rewards, episodes)))
    assert {"proposer", "solver"} == set(rows.agent.tolist())
    assert set(rows.reward.tolist()) == {1.0, 0.0, -0.25}
