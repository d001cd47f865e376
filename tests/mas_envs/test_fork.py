"""A fork keeps what happened before its decision, exactly, and draws the rest anew."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

import mas_envs
from mas_envs import Ask, Call, Fork, Message, Outcome, Response, TaskSet, WorkflowEnv
from mas_envs.errors import ReplayMismatch, UserError
from mas_envs.policies.scripted import ScriptedPolicy
from tests.mas_envs.env_cases import ARITH, Talk, collect, timeless

TASKS = TaskSet([("q", "a", {}), ("r", "b", {})])


class Panel(WorkflowEnv):
    """One speaks, a die is thrown, three answer side by side, one ends it."""

    roles = ("a", "b", "c")

    def __init__(self, die=None, **common):
        super().__init__(tasks=TASKS, **common)
        self.tools = {"die": die or (lambda batch: [len(str(args)) % 6 for args in batch])}

    def play(self, task, rng):
        first = yield Ask("a_0", [Message("user", task.question + str(rng.integers(99)))])
        thrown = yield Call("die", {"text": first.text})
        shown = [Message("user", f"{first.text} {thrown}")]
        replies = yield [Ask(agent, shown) for agent in self.possible_agents]
        last = yield Ask("b_0", [Message("user", "|".join(reply.text for reply in replies))])
        return Outcome(reward=float(len(last.text)), turn_rewards={replies[1].turn: 0.5})


class Numbers:
    """Says the seed it was given; remembers what it was asked."""

    def __init__(self):
        self.requests = []

    async def act(self, request):
        self.requests.append(request)
        ids = np.array([request.seed % 1000, 1], np.int32)
        return Response(text=f"{request.agent}:{request.seed}", prompt_ids=ids, ids=ids,
                        log_probs=np.zeros(2, np.float32), versions=((0, 1),))  # fmt: skip


def original(**options):
    return collect(Panel(), TASKS, Numbers(), seed=5, samples=2, **options)[1]


def test_only_what_comes_after_is_asked():
    episode, policy = original(), Numbers()
    (fork,) = collect(Panel(), [Fork(episode, 2)], policy, seed=5)
    assert [request.agent for request in policy.requests] == ["a_0", "b_0", "c_0", "b_0"]
    assert [request.key for request in policy.requests] == [
        (0, 0, 1),
        (0, 0, 2),
        (0, 0, 3),
        (0, 0, 4),
    ]
    assert len(fork.events) == len(episode.events)
    kept, was = fork.turns[0], episode.turns[0]
    assert (kept.text, kept.seed, kept.versions) == (was.text, was.seed, was.versions)
    assert kept.ids.tolist() == was.ids.tolist()
    assert kept.prompt_ids.tolist() == was.prompt_ids.tolist()
    assert kept.log_probs.tolist() == was.log_probs.tolist()
    assert fork.events[1].result == episode.events[1].result


def test_in_the_middle_of_a_parallel_batch():
    """Event 3 is the second of three that speak at once: the first one's answer stays."""
    episode, policy = original(), Numbers()
    assert [turn.batch for turn in episode.turns] == [0, 2, 2, 2, 3]
    (fork,) = collect(Panel(), [Fork(episode, 3)], policy, seed=5)
    assert [request.agent for request in policy.requests] == ["b_0", "c_0", "b_0"]
    assert [turn.text for turn in fork.turns[:2]] == [turn.text for turn in episode.turns[:2]]
    assert fork.turns[2].text != episode.turns[2].text
    assert fork.turns[4].messages[0].content == "|".join(turn.text for turn in fork.turns[1:4])
    assert [turn.batch for turn in fork.turns] == [0, 2, 2, 2, 3]
    assert [turn.reward for turn in fork.turns] == [0.0, 0.0, 0.5, 0.0, 0.0]
    mas_envs.replay(Panel(), fork)


def test_in_front_of_a_tool_it_is_called_again():
    calls = []

    def die(batch):
        calls.extend(batch)
        return [77] * len(batch)

    episode = original()
    (fork,) = collect(Panel(die), [Fork(episode, 1)], Numbers())
    assert calls == [episode.events[1].args]
    assert fork.events[1].result == 77
    assert "77" in fork.turns[1].messages[0].content
    (kept,) = collect(Panel(die), [Fork(episode, 2)], Numbers())
    assert kept.events[1].result == episode.events[1].result
    assert len(calls) == 1, "what was recorded is not called again"


def seeds(episode, start):
    return [turn.seed for turn in episode.turns if turn.index >= start]


def test_the_same_place_draws_alike_and_others_do_not():
    episode, other = original(), collect(Panel(), TASKS, Numbers(), seed=5)[1]
    assert other.question != episode.question
    one, two = (collect(Panel(), [Fork(episode, 2)], Numbers(), samples=3, seed=9) for _ in "12")
    assert [timeless(e) for e in one] == [timeless(e) for e in two]
    drawn = [
        *(seeds(e, 2) for e in one),
        *(seeds(e, 2) for e in collect(Panel(), [Fork(episode, 2)], Numbers(), seed=10)),
        *(seeds(e, 2) for e in collect(Panel(), [Fork(episode, 2)], Numbers(), seed=9, step=1)),
        *(seeds(e, 2) for e in collect(Panel(), [Fork(other, 2)], Numbers(), seed=9)),
        *(seeds(e, 2) for e in collect(Panel(), [Fork(episode, 0)], Numbers(), seed=9)),
        seeds(episode, 2),
    ]
    flat = [seed for seeds_ in drawn for seed in seeds_]
    assert len(set(flat)) == len(flat)


def test_a_fork_at_the_start_is_not_the_task_itself():
    """It keeps the environment's seed (what is shown), but its samples are new ones."""
    episode = original()
    (fork,) = collect(Panel(), [Fork(episode, 0)], Numbers(), seed=5)
    assert fork.turns[0].messages == episode.turns[0].messages
    assert fork.seed == episode.seed
    assert not set(seeds(fork, 0)) & set(seeds(episode, 0))


def test_forks_and_tasks_in_one_rollout_are_groups_of_their_own():
    episode = original()
    jobs = [TASKS[0], Fork(episode, 3), TASKS[1], Fork(episode, 3)]
    found = collect(Panel(), jobs, Numbers(), samples=2, seed=5, step=4)
    assert [(e.group, e.sample, e.step) for e in found] == [
        (g, s, 4) for g in range(4) for s in range(2)
    ]
    assert [e.provenance for e in found[:2]] == [{}, {}]
    assert {e.provenance["decision"] for e in (*found[2:4], *found[6:])} == {"3"}
    repeated = [seeds(e, 3) for e in (found[2], found[3], found[6], found[7])]
    assert len({tuple(one) for one in repeated}) == 4, "one place named twice draws twice"


def test_it_says_where_it_comes_from():
    episode = original()
    assert episode.sample == 1
    place = Fork(episode, 3)
    (fork,) = collect(Panel(), [place], Numbers())
    assert fork.provenance == {
        "fork": place.id, "sample": "1", "decision": "3",
    }  # fmt: skip
    assert episode.provenance == {}
    assert mas_envs.replay(Panel(), fork).episode.provenance == fork.provenance


def test_a_fork_of_a_fork():
    episode = original()
    (once,) = collect(Panel(), [Fork(episode, 3)], Numbers(), seed=5)
    (twice,) = collect(Panel(), [Fork(once, 5)], Numbers(), seed=5)
    texts = [turn.text for turn in once.turns]
    assert [turn.text for turn in twice.turns[:4]] == texts[:4]
    assert twice.turns[4].text != texts[4]
    assert twice.provenance["decision"] == "5"
    assert twice.task == episode.task
    assert Fork(once, 3).id == Fork(episode, 3).id, "the same place, though reached twice"
    assert Fork(once, 5).id != Fork(episode, 5).id


def failing(request):
    if request.agent == "b_0":
        raise RuntimeError("engine died")
    return f"{request.agent}:{request.seed}"


def test_a_failed_episode_goes_on_where_it_stood():
    (failed,) = collect(Panel(), TASKS[:1], ScriptedPolicy(failing), retries=0)
    assert (failed.status, len(failed.events)) == ("failed", 2)
    (rescued,) = collect(Panel(), [Fork(failed, 2)], Numbers())
    assert rescued.status == "done"
    assert (rescued.reason, rescued.turns[0].text) == ("", failed.turns[0].text)
    assert rescued.provenance["decision"] == "2"
    (again,) = collect(Panel(), [Fork(failed, 2)], ScriptedPolicy(failing), retries=0)
    assert again.status == "failed"
    with pytest.raises(UserError, match="0 to 2"):
        Fork(failed, 3)


@pytest.mark.parametrize("decision", [-1, 6, 99, None, "1", 1.0, True])
def test_no_such_decision(decision):
    with pytest.raises(UserError, match="0 to 5"):
        Fork(original(), decision)


@pytest.mark.parametrize("decision", [-1, 7, "1", 1.5, [1]])
def test_no_such_decision_to_restore(decision):
    with pytest.raises(UserError, match=r"no event .*; the episode has 6"):
        Panel().restore(original(), decision)


@pytest.mark.parametrize("episode", ["e.jsonl", None, {}, TASKS[0]], ids=repr)
def test_something_else_than_an_episode(episode):
    with pytest.raises(UserError, match="is no Episode"):
        Fork(episode, 0)
    with pytest.raises(UserError, match="is no Episode"):
        Panel().restore(episode, 0)


def test_the_end_of_a_finished_episode_is_no_decision():
    episode = original()
    assert Fork(episode, len(episode.events) - 1).decision == 5
    with pytest.raises(UserError, match="can be forked at"):
        Fork(episode, len(episode.events))


def made(id, **kwargs):
    return mas_envs.make(id, tasks=ARITH, **kwargs)


def test_another_environment_is_refused():
    """math-single-v0 and vote-v0 show the same text to the same agent: the class decides."""
    env = made("vote-v0")
    episode = collect(env, env.tasks[:1])[0]
    for other in (made("math-single-v0"), made("math-v0"), made("debate-v0")):
        for decision in range(len(episode.events)):
            with pytest.raises(ReplayMismatch):
                collect(other, [Fork(episode, decision)])
        with pytest.raises(ReplayMismatch):
            other.restore(episode, 0)


def test_other_prompts_are_refused_at_the_decision_itself(tmp_path):
    episode = collect(made("math-v0"), made("math-v0").tasks[:1])[0]
    mine = tmp_path / "mine.toml"
    mine.write_text('[solver]\nuser = "{question}"\n[verifier]\nuser = "{draft}"\n')
    other = made("math-v0", prompts={"verifier": str(mine)})
    other.restore(episode, 0)
    with pytest.raises(ReplayMismatch, match="event 1: verifier_0 was shown something else"):
        other.restore(episode, 1)


def test_more_rounds_may_be_played_from_there():
    """Another argument is no mismatch while all that was recorded is asked alike."""
    reject = ScriptedPolicy(
        lambda r: "<verify>reject</verify>" if r.role == "verifier" else r"\boxed{0}"
    )
    env = made("math-v0")
    (episode,) = collect(env, env.tasks[:1], reject)
    (longer,) = collect(made("math-v0", max_rounds=4), [Fork(episode, 2)], reject)
    assert (episode.info["rounds"], longer.info["rounds"]) == (2, 4)


def test_a_changed_recording_is_noticed_when_it_is_played():
    episode = original()
    events = list(episode.events)
    events[0] = msgspec.structs.replace(events[0], text="something else")
    changed = msgspec.structs.replace(episode, events=events)
    with pytest.raises(ReplayMismatch):
        collect(Panel(), [Fork(changed, 2)], Numbers())


def test_the_recorded_episode_is_not_touched():
    episode = original()
    before = timeless(episode)
    collect(Panel(), [Fork(episode, 2), Fork(episode, 4)], Numbers(), samples=3)
    assert timeless(episode) == before


def test_shaping_counts_for_the_turns_that_were_kept():
    def hook(episode, turn):
        return float(len(episode.turns)) + turn.index / 8

    episode = original()
    (fork,) = collect(Panel(shaping={"a": hook}), [Fork(episode, 3)], Numbers())
    assert [turn.reward for turn in fork.turns] == [5.0, 5.25, 0.5, 0.0, 0.0]


def test_ids_are_pinned():
    """Seeds follow from them: a change would draw another continuation of every stored episode."""
    episode = mas_envs.Episode(env={}, prompts="", task="00" * 8, seed=7, status="failed")
    assert Fork(episode, 0).id == PINNED
    assert int(PINNED, 16) >= 0


PINNED = "5aa5bd206078fb36"


def test_best_of_n_from_the_middle():
    """What the module promises: alternatives of one decision, the best of which is better."""
    env = made("math-v0")

    async def alternatives():
        (episode,) = await mas_envs.collect(env, Talk(), env.tasks[:1])
        return await mas_envs.collect(env, Talk(), [Fork(episode, 0)], samples=8)

    drafts = {episode.turns[0].text for episode in asyncio.run(alternatives())}
    assert len(drafts) > 1
