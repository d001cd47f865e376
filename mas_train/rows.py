"""Episodes as rows: one row per turn, the unit that advantages and losses are computed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mas_envs.episodes.schema import Episode, Turn, row_rewards
from mas_envs.errors import UserError


@dataclass(frozen=True, slots=True)
class Rows:
    """N rows. Arrays [N] and lists of N arrays; a row is never copied, split or reordered within.

    `reward` R of the row (team reward plus the turn's own); `prompt` code of the prompt group;
    `agent` role; `trajectory` code of the episode; `turn` rank of the turn in its episode, turns
    asked in parallel share it; `known` False for rows of failed episodes. Of row i: `prompt_ids[i]`
    [P] and `ids[i]` [T] int32, `log_probs[i]` [T] float32 in nats under the policy that sampled
    them at `temperature[i]`. A row without tokens (an untrained agent) has arrays of length 0.
    """

    reward: np.ndarray[Any, np.dtype[np.float64]]
    prompt: np.ndarray[Any, np.dtype[np.int64]]
    agent: np.ndarray[Any, np.dtype[np.str_]]
    trajectory: np.ndarray[Any, np.dtype[np.int64]]
    turn: np.ndarray[Any, np.dtype[np.int64]]
    known: np.ndarray[Any, np.dtype[np.bool_]]
    temperature: np.ndarray[Any, np.dtype[np.float64]]
    prompt_ids: Sequence[np.ndarray[Any, np.dtype[np.int32]]]
    ids: Sequence[np.ndarray[Any, np.dtype[np.int32]]]
    log_probs: Sequence[np.ndarray[Any, np.dtype[np.float32]]]

    def __len__(self) -> int:
        return len(self.reward)

    def take(self, index: Any) -> Rows:
        """The rows at `index` (integers, or a mask [N]), in that order."""
        rows = np.arange(len(self))[index]
        return Rows(
            reward=self.reward[rows],
            prompt=self.prompt[rows],
            agent=self.agent[rows],
            trajectory=self.trajectory[rows],
            turn=self.turn[rows],
            known=self.known[rows],
            temperature=self.temperature[rows],
            prompt_ids=[self.prompt_ids[i] for i in rows],
            ids=[self.ids[i] for i in rows],
            log_probs=[self.log_probs[i] for i in rows],
        )


def episode_rows(episodes: Iterable[Episode], trained: Collection[str] | None = None) -> Rows:
    """One row per turn of each episode, in order.

    `trained` names the roles whose rows will be trained on (None: all of them). Their turns must
    carry tokens and be sampled without truncation of the distribution.

    Raises `UserError` for a turn of a trained role, in a done episode, that has no token ids, has
    ids and log-probs of different length, or was sampled with top_p < 1, top_k or temperature 0:
    then the log-probs of the learner and of the sampler are those of different distributions, and
    the importance ratio is biased.
    """
    groups: dict[tuple[int, int, str], int] = {}
    heads: list[tuple[float, int, str, int, int, bool, float]] = []
    tokens: list[tuple[Any, Any, Any]] = []
    for trajectory, episode in enumerate(episodes):
        group = groups.setdefault((episode.step, episode.group, episode.task), len(groups))
        done = episode.status == "done"
        turns = episode.turns
        ranks = {batch: i for i, batch in enumerate(sorted({turn.batch for turn in turns}))}
        for turn, reward in zip(turns, row_rewards(episode), strict=True):
            if done and (trained is None or turn.role in trained):
                _check_trainable(episode, turn)
            rank, temperature = ranks[turn.batch], turn.sampling.temperature
            heads.append((reward, group, turn.role, trajectory, rank, done, temperature))
            tokens.append(_tokens(turn))
    columns: list[Any] = list(zip(*heads, strict=True)) or [()] * 7
    prompt_ids, ids, log_probs = list(zip(*tokens, strict=True)) or [()] * 3
    return Rows(
        reward=np.array(columns[0], np.float64),
        prompt=np.array(columns[1], np.int64),
        agent=np.array(columns[2], np.str_),
        trajectory=np.array(columns[3], np.int64),
        turn=np.array(columns[4], np.int64),
        known=np.array(columns[5], np.bool_),
        temperature=np.array(columns[6], np.float64),
        prompt_ids=prompt_ids,
        ids=ids,
        log_probs=log_probs,
    )


def _tokens(turn: Turn) -> tuple[Any, Any, Any]:
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
