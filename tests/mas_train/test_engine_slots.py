"""Admission and prefill batches as pure functions: nobody is lost, moved twice or overtaken."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mas_envs import Message, Request, Sampling
from mas_train.engines.slots import Row, admit, context_batches


def row(loop, key, done=False, length=1):
    request = Request(agent="a_0", role="a", messages=(Message("user", "q"),),
                      sampling=Sampling(), seed=0, key=key)  # fmt: skip
    future = loop.create_future()
    if done:
        future.set_result(None)
    return Row(request, future, np.arange(length, dtype=np.int32), 9, np.empty(0))


keys = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
states = st.lists(st.tuples(keys, st.booleans()), max_size=8)


@given(decoding=states, pending=states, spare=st.integers(0, 4))
def test_admission(decoding, pending, spare):
    loop = asyncio.new_event_loop()
    rows = [row(loop, key, done) for key, done in decoding]
    queue = [row(loop, key, done) for key, done in pending]
    loop.close()
    before, limit = list(rows), max(1, len(rows) + spare)
    admitted, moves, waiting = admit(rows, queue, limit)
    alive = [one for one in before if not one.future.done()]
    wanting = [one for one in queue if not one.future.done()]
    entered = [rows[slot] for slot in admitted]
    assert len(rows) <= limit and not any(one.future.done() for one in rows)
    assert set(map(id, rows)) == set(map(id, [*alive, *entered]))
    assert len(rows) == len(alive) + len(entered)
    assert set(map(id, [*entered, *waiting])) == set(map(id, wanting))
    assert not waiting or len(rows) == limit
    in_order = [one.request.key for one in [*entered, *waiting]]
    assert in_order == sorted(in_order)
    cache = {slot: one for slot, one in enumerate(before)} | dict(
        zip(admitted, entered, strict=True)
    )
    for to, source in moves:
        cache[to] = cache[source]
    assert [cache[slot] for slot in range(len(rows))] == rows, "the cache moves as the rows do"


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    budget=st.integers(1, 40),
)
def test_every_context_is_computed_once_within_the_budget(lengths, budget):
    loop = asyncio.new_event_loop()
    rows = [row(loop, (0, 0, 0), length=length) for length in lengths]
    loop.close()
    batches = list(context_batches(rows, range(len(rows)), budget))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(map(len, batch)) <= budget
        for context, slots in batch.items():
            assert all(rows[slot].context == context for slot in slots)
    contexts = [context for batch in batches for context in batch]
    assert sorted(map(len, contexts)) == sorted(set(lengths)) == list(map(len, contexts))
    assert sorted(slot for batch in batches for slots in batch.values() for slot in slots) == list(
        range(len(rows))
    )
