"""Episodes as rows: one row per turn, the unit that advantages and losses are computed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mas_envs.episodes.schema import Episode, Ids, LogProbs, Turn, row_rewards
from mas_envs.errors import UserError


@dataclass(frozen=True, slots=True)
class Rows:
    """N rows. Arrays [N] and lists of N arrays; a row is never copied, split or reordered within.

    `reward` R of the row (team reward plus the turn's own); `prompt` code of the prompt group;
    `agent` role; `agent_id` whose turn it is; `trajectory` code of the episode; `turn` rank of the
    turn in its episode, turns asked in parallel share it; `known` False for rows of failed
    episodes; `cut` True for turns that ended at the length limit; `event` the turn's index among
    the events of its episode. Of row i: `prompt_ids[i]` [P] and `ids[i]` [T] int32,
    `log_probs[i]` [T] float32 in nats under the policy that sampled them at `temperature[i]`. A row
    without tokens (an untrained agent) has arrays of length 0.
    """

    reward: NDArray[np.float64]
    prompt: NDArray[np.int64]
    agent: NDArray[np.str_]
    agent_id: NDArray[np.str_]
    trajectory: NDArray[np.int64]
    turn: NDArray[np.int64]
    known: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    event: NDArray[np.int64]
    temperature: NDArray[np.float64]
    prompt_ids: Sequence[Ids]
    ids: Sequence[Ids]
    log_probs: Sequence[LogProbs]

    def __len__(self) -> int:
        return len(self.reward)

    def take(self, index: Any) -> Rows:
        """The rows at `index` (integers, or a mask [N]), in that order."""
        rows = np.arange(len(self))[index]
        return Rows(
            reward=self.reward[rows],
            prompt=self.prompt[rows],
            agent=self.agent[rows],
            agent_id=self.agent_id[rows],
            trajectory=self.trajectory[rows],
            turn=self.turn[rows],
            known=self.known[rows],
            cut=self.cut[rows],
            event=self.event[rows],
            temperature=self.temperature[rows],
            prompt_ids=[self.prompt_ids[i] for i in rows],
            ids=[self.ids[i] for i in rows],
            log_probs=[self.log_probs[i] for i in rows],
        )


def episode_rows(episodes: Iterable[Episode], trained: Collection[str] | None = None) -> Rows:
    """One row per turn of each episode, in order.

    `trained` names the roles or agents whose rows will be trained on (None: all). Their turns must
    carry tokens and be sampled without truncation of the distribution.

    Raises `UserError` for a turn of one of these, in a done episode, that has no token ids, has
    ids and log-probs of different length, or was sampled with top_p < 1, top_k or temperature 0:
    then the log-probs of the learner and of the sampler are those of different distributions, and
    the importance ratio is biased.
    """
    groups: dict[tuple[int, int, str], int] = {}
    rows: list[_Row] = []
    for trajectory, episode in enumerate(episodes):
        group = groups.setdefault((episode.step, episode.group, episode.task), len(groups))
        done, turns = episode.status == "done", episode.turns
        ranks = {batch: i for i, batch in enumerate(sorted({turn.batch for turn in turns}))}
        kept = int(episode.provenance.get("decision", 0))  # of a fork: rows of its original
        for turn, reward in zip(turns, row_rewards(episode), strict=True):
            if turn.index < kept:
                continue
            if done and (trained is None or not {turn.agent, turn.role}.isdisjoint(trained)):
                _check_trainable(episode, turn)
            rows.append(_Row(turn, reward, group, trajectory, ranks[turn.batch], done))
    tokens = [_tokens(row.turn) for row in rows]
    return Rows(
        reward=np.array([row.reward for row in rows], np.float64),
        prompt=np.array([row.prompt for row in rows], np.int64),
        agent=np.array([row.turn.role for row in rows], np.str_),
        agent_id=np.array([row.turn.agent for row in rows], np.str_),
        trajectory=np.array([row.trajectory for row in rows], np.int64),
        turn=np.array([row.rank for row in rows], np.int64),
        known=np.array([row.known for row in rows], np.bool_),
        cut=np.array([row.turn.finish_reason == "length" for row in rows], np.bool_),
        event=np.array([row.turn.index for row in rows], np.int64),
        temperature=np.array([row.turn.sampling.temperature for row in rows], np.float64),
        prompt_ids=[prompt_ids for prompt_ids, _, _ in tokens],
        ids=[ids for _, ids, _ in tokens],
        log_probs=[log_probs for _, _, log_probs in tokens],
    )


class _Row(NamedTuple):
    turn: Turn
    reward: float
    prompt: int
    trajectory: int
    rank: int
    known: bool


def _tokens(turn: Turn) -> tuple[Ids, Ids, LogProbs]:
    """Prompt ids, response ids and log-probs; empty arrays for a policy without tokens."""
    if turn.prompt_ids is None or turn.ids is None or turn.log_probs is None:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    return turn.prompt_ids, turn.ids, turn.log_probs


def _check_trainable(episode: Episode, turn: Turn) -> None:
    where = f"task {episode.task}, sample {episode.sample}, turn {turn.index} of {turn.agent!r}"
    if turn.prompt_ids is None or turn.ids is None or turn.log_probs is None:
        raise UserError(
            f"{where} carries no token ids; the model {turn.model!r} of role {turn.role!r} can be "
            "trained only through an engine that returns ids and log-probs"
        )
    if len(turn.ids) != len(turn.log_probs):
        raise UserError(f"{where}: {len(turn.ids)} ids but {len(turn.log_probs)} log-probs")
    sampling = turn.sampling
    if sampling.top_p < 1 or sampling.top_k > 0 or sampling.temperature <= 0:
        raise UserError(
            f"{where} was sampled with temperature {sampling.temperature}, top_p {sampling.top_p}, "
            f"top_k {sampling.top_k}; training needs temperature > 0, top_p 1 and top_k 0 (a "
            "truncated distribution biases the importance ratio)"
        )
