"""What an answer of a policy must be, so that its episode can be stored and trained on."""

from __future__ import annotations

import numpy as np
import pytest

from mas_envs import Response, collect
from mas_envs.episodes.schema import decode, encode
from mas_envs.policies.base import checked
from tests.mas_envs.rollout_cases import TASKS, Chat

IDS, LOG_PROBS = np.arange(3, dtype=np.int32), np.zeros(3, np.float32)
TOKENS = {"ids": IDS, "log_probs": LOG_PROBS, "versions": ((0, 4), (2, 5))}


class Says:
    def __init__(self, response):
        self.response = response

    async def act(self, request):
        return self.response


GOOD = {
    "text": {},
    "tokens": TOKENS,
    "wider types": TOKENS | {"ids": IDS.astype(np.int64), "log_probs": LOG_PROBS.astype(float)},
    "no tokens": {"ids": IDS[:0], "log_probs": LOG_PROBS[:0]},
    "log-probs alone": {"log_probs": LOG_PROBS},
    "ids alone": {"ids": IDS, "versions": [[0, 0]]},
    "surrogates": {"text": "\ud800", "model": "\udfff", "finish_reason": "\ud800"},
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_can_be_stored(virtual, name):
    response = Response(**{"text": "x", **GOOD[name]})
    assert checked(response) is response
    (episode,) = virtual(collect(Chat(), Says(response), TASKS[:1]))
    assert episode.status == "done"
    stored = decode(encode(episode)).turns[0]
    if response.ids is not None:
        assert stored.ids.tolist() == response.ids.tolist()
    assert "\ud800" not in stored.text + stored.model + stored.finish_reason


BAD = {
    "no text": ({"text": None}, "whose text is str, not None"),
    "no model": ({"model": None}, "whose model is str"),
    "no finish reason": ({"finish_reason": None}, "whose finish_reason is str"),
    "a count as text": ({"prompt_tokens": "7"}, "whose prompt_tokens is int, not '7'"),
    "a numpy count": ({"response_tokens": np.int64(7)}, "whose response_tokens is int"),
    "a list": (TOKENS | {"ids": [0, 1, 2]}, "whose ids are 1-d int32"),
    "a batch": (TOKENS | {"ids": IDS[None]}, "whose ids are 1-d int32"),
    "float ids": (TOKENS | {"ids": LOG_PROBS}, "whose ids are 1-d int32"),
    "unsigned": (TOKENS | {"ids": IDS.astype(np.uint32)}, "whose ids are 1-d int32"),
    "too large": (TOKENS | {"ids": IDS.astype(np.int64) + 2**31}, "whose ids are 1-d int32"),
    "float prompt": ({"prompt_ids": LOG_PROBS}, "whose prompt_ids are 1-d int32"),
    "integer log-probs": (TOKENS | {"log_probs": IDS}, "whose log_probs are 1-d float32"),
    "NaN": (TOKENS | {"log_probs": LOG_PROBS * np.nan}, "not finite"),
    "minus infinity": (TOKENS | {"log_probs": LOG_PROBS - np.inf}, "not finite"),
    "one short": (TOKENS | {"log_probs": LOG_PROBS[1:]}, "2 log_probs for 3 ids"),
    "no versions": (TOKENS | {"versions": ()}, "ids without versions"),
    "a version": (TOKENS | {"versions": 3}, "versions 3"),
    "a float version": (TOKENS | {"versions": ((0.0, 1),)}, "among the versions"),
    "numpy versions": (TOKENS | {"versions": ((np.int64(0), 1),)}, "among the versions"),
    "half a version": (TOKENS | {"versions": ((0,),)}, "among the versions"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_fails_its_episode_and_says_why(virtual, name):
    """Stored, it would make the whole file unreadable, or a loss NaN."""
    fields, message = BAD[name]
    response = Response(**{"text": "x", **fields})
    with pytest.raises((TypeError, ValueError), match=message):
        checked(response)
    (episode,) = virtual(collect(Chat(), Says(response), TASKS[:1]))
    assert episode.status == "failed"
    assert message in episode.reason
    assert decode(encode(episode)) == episode
