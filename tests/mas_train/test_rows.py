"""Episodes to rows."""

from __future__ import annotations

import numpy as np
import pytest

from mas_envs.episodes.schema import Episode, Sampling, ToolResult, Turn
from mas_envs.errors import UserError
from mas_train.experience.rows import episode_rows


def turn(index, role, batch=None, tokens=3, penalty=0.0, **changes):
    fields = {
        "index": index,
        "batch": index if batch is None else batch,
        "agent": f"{role}_0",
        "role": role,
        "messages": (),
        "text": "",
        "reward": penalty,
        "prompt_ids": np.arange(2, dtype=np.int32),
        "ids": np.arange(tokens, dtype=np.int32),
        "log_probs": np.full(tokens, -0.5, np.float32),
    }
    return Turn(**{**fields, **changes})


def episode(*events, reward=1.0, group=0, sample=0, task="t", **changes):
    return Episode(
        env={}, prompts="", task=task, events=list(events), reward=reward, group=group,
        sample=sample, **changes,
    )  # fmt: skip


def test_one_row_per_turn():
    first = episode(
        turn(0, "solver"), turn(1, "verifier", penalty=-0.1), turn(2, "solver", tokens=0)
    )
    second = episode(turn(0, "solver"), reward=0.0, sample=1)
    third = episode(turn(0, "solver", sampling=Sampling(temperature=0.7)), group=5, task="u")
    rows = episode_rows([first, second, third])
    assert len(rows) == 5
    assert rows.reward.tolist() == pytest.approx([1.0, 0.9, 1.0, 0.0, 1.0])
    assert rows.prompt.tolist() == [0, 0, 0, 0, 1]
    assert rows.agent.tolist() == ["solver", "verifier", "solver", "solver", "solver"]
    assert rows.trajectory.tolist() == [0, 0, 0, 1, 2]
    assert rows.turn.tolist() == [0, 1, 2, 0, 0]
    assert rows.temperature.tolist() == [1, 1, 1, 1, 0.7]
    assert [len(ids) for ids in rows.ids] == [3, 3, 0, 3, 3]
    assert rows.known.all()


def test_one_task_drawn_twice_is_two_groups():
    played = [episode(turn(0, "solver"), group=group, step=step)
              for group, step in [(0, 0), (0, 0), (3, 0), (0, 1)]]  # fmt: skip
    assert episode_rows(played).prompt.tolist() == [0, 0, 1, 2]


def test_a_turn_cut_off_at_its_limit_is_marked():
    rows = episode_rows(
        [episode(turn(0, "solver", finish_reason="length"), turn(1, "verifier", tokens=2))]
    )
    assert rows.cut.tolist() == [True, False]


def test_a_fork_has_no_rows_before_its_decision():
    events = [turn(k, role) for k, role in enumerate(["solver", "verifier", "solver", "verifier"])]
    rows = episode_rows([episode(*events, provenance={"decision": 2})])
    assert rows.event.tolist() == [2, 3] and rows.turn.tolist() == [2, 3]


def test_parallel_turns_share_a_rank_and_tools_do_not_count():
    rows = episode_rows(
        [
            episode(
                turn(0, "solver"),
                ToolResult(index=1, batch=1, tool="grade", args={}),
                turn(2, "critic", batch=2),
                turn(3, "critic", batch=2, agent="critic_1"),
                turn(4, "solver", batch=3),
            )
        ]
    )
    assert rows.turn.tolist() == [0, 1, 1, 2]


def test_failed_episodes_are_unknown_and_may_lack_tokens():
    broken = episode(turn(0, "solver", ids=None, log_probs=None), status="failed")
    rows = episode_rows([broken, episode(turn(0, "solver"), sample=1)])
    assert rows.known.tolist() == [False, True]
    assert len(rows.ids[0]) == 0


def test_take_by_mask_and_by_index():
    rows = episode_rows([episode(turn(0, "solver"), turn(1, "verifier", tokens=5))])
    verifier = rows.take(rows.agent == "verifier")
    assert verifier.agent.tolist() == ["verifier"] and len(verifier.ids[0]) == 5
    assert rows.take([1, 0]).agent.tolist() == ["verifier", "solver"]
    assert len(rows.take([])) == 0


def test_no_episodes():
    assert len(episode_rows([])) == 0


def test_a_trained_role_needs_tokens():
    frozen = episode(turn(0, "solver"), turn(1, "verifier", prompt_ids=None, ids=None))
    assert len(episode_rows([frozen], trained=["solver"])) == 2
    with pytest.raises(UserError, match=r"verifier_0.*no token ids"):
        episode_rows([frozen])


@pytest.mark.parametrize(
    "sampling", [Sampling(top_p=0.9), Sampling(top_k=20), Sampling(temperature=0.0)]
)
def test_truncated_sampling_is_refused_for_trained_roles(sampling):
    truncated = episode(turn(0, "solver", sampling=sampling))
    with pytest.raises(UserError, match="biases the importance ratio"):
        episode_rows([truncated])
    assert len(episode_rows([truncated], trained=[])) == 1


def test_ids_and_log_probs_must_align():
    with pytest.raises(UserError, match="3 ids but 2 log-probs"):
        episode_rows([episode(turn(0, "solver", log_probs=np.zeros(2, np.float32)))])
