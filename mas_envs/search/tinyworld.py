"""A small consistent world: 3,000 short passages, and one- and two-hop questions on them.

    >>> questions("dev", hops=(2,), n=1)[0].question
    'In which town is the school where Arno Delacour was educated?'

A passage tells all facts of one *entity* (a person, town, book …); a fact is (entity, relation,
value) and has one value. A one-hop question asks for the value of a fact of its *subject*. A
two-hop question asks for a fact of the value of a fact: subject → *bridge* → answer.

Splits. An entity belongs to the split that a hash of its name gives, in every world:

    train  the first 1/2 of the hash range
    dev    the next 1/5
    test   the last 3/10

A question belongs to a split if its subject, and its bridge where it has one, belong to it; a
two-hop question whose subject and bridge disagree is in none. So an entity that is subject or
bridge in one split is neither in another, and no fact that a question needs is needed in two
splits. An answer may be an entity of any split. The passages of all splits are one corpus.

A question is left out if its answer shares a word with the name of its subject, and a two-hop
question if any passage names both its subject and its answer. Of what remains, each entity is the
subject of one question of each number of hops, so that no entity weighs more than another.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from mas_envs.errors import UnknownName, UserError
from mas_envs.search import names
from mas_envs.search.world import Entity, Fact, World, make_world, pick, shuffled, words_of
from retrievers import Passage

SPLITS: dict[str, tuple[float, float]] = {
    "train": (0.0, 1 / 2),
    "dev": (1 / 2, 7 / 10),
    "test": (7 / 10, 1.0),
}
Chain = list[tuple[Entity, str]]


class Question(NamedTuple):
    """`meta` holds hops, split, entity (the subject's name), and in hop order relations and
    supporting (the ids of the passages needed).
    """

    question: str
    answer: str | list[str]
    meta: dict[str, Any]


def passages(seed: int = 0) -> list[Passage]:
    """The 3,000 passages of world `seed`, always in one order. Raises `UserError` on a bad seed."""
    _check_seed(seed)
    return list(make_world(seed).passages)


def split_of(name: str) -> str:
    """The split of the entity of that name."""
    digest = hashlib.blake2b(name.casefold().encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    return "train" if place < SPLITS["dev"][0] else "dev" if place < SPLITS["test"][0] else "test"


def questions(
    split: str = "train", hops: Sequence[int] = (1, 2), seed: int = 0, n: int | None = None
) -> list[Question]:
    """`n` questions (default: all) on world `seed`, the numbers of hops in turn.

    `seed` must be that of the `passages`. A number of hops that runs out leaves its place to the
    other. An answer is the gold as the passage has it, or a list of that and its other forms.
    Raises `UserError` on an unknown split, bad hops or seed, and when fewer than `n` exist.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS, "tinyworld")
    if not isinstance(hops, Sequence) or list(hops) not in ([1], [2], [1, 2], [2, 1]):
        raise UserError(f"tinyworld: hops {hops!r}; give [1], [2] or [1, 2]")
    _check_seed(seed)
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
        raise UserError(f"tinyworld: n is {n!r}; it must be an integer of at least 1, or None")
    world = make_world(seed)
    queues = []
    for hop in hops:
        rng = random.Random(4 * seed + hop)  # world `seed` itself is made with 4 * seed
        queues.append(shuffled(rng, _asked(world, split, hop, rng)))
    found = [one for turn in zip_longest(*queues) for one in turn if one is not None]
    if n is not None and len(found) < n:
        raise UserError(
            f"tinyworld: split {split!r} has only {len(found)} questions of hops {list(hops)}, "
            f"not {n}; ask for fewer"
        )
    return found[:n]


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError(f"tinyworld: seed is {seed!r}; it must be an integer of at least 0")


def _asked(world: World, split: str, hops: int, rng: random.Random) -> Iterator[Question]:
    """One question per subject of the split that has any of so many hops."""
    for subject in world.entities:
        if split_of(subject.name) != split:
            continue
        found = [path for path in _paths(subject, split, hops) if _fair(world, *path)]
        if found:
            yield _question(*pick(rng, found), split, rng)


def _paths(subject: Entity, split: str, hops: int) -> Iterator[tuple[Chain, Fact]]:
    """(entity, relation) of each hop, and the value reached."""
    for relation, value in subject.facts.items():
        if (subject.kind, relation) not in names.ASKED:
            continue
        if hops == 1:
            yield [(subject, relation)], value
        elif isinstance(value, Entity) and split_of(value.name) == split:
            for last, answer in _paths(value, split, hops - 1):
                yield [(subject, relation), *last], answer


def _fair(world: World, chain: Chain, answer: Fact) -> bool:
    """Whether neither the subject's name nor (two hops) one passage alone gives the answer away."""
    subject = chain[0][0]
    gold = words_of(_gold(answer))
    if set(gold.split()) & set(words_of(subject.name).split()):
        return False
    return len(chain) == 1 or not any(gold in world.words[id] for id in world.naming[subject.id])


def _question(chain: Chain, answer: Fact, split: str, rng: random.Random) -> Question:
    subject = chain[0][0]
    x = f'"{subject.name}"' if subject.kind in ("book", "painting") else subject.label
    for entity, relation in chain[:-1]:
        x = pick(rng, names.ASKED[entity.kind, relation][1]).format(x=x)
    last, relation = chain[-1]
    text = pick(rng, names.ASKED[last.kind, relation][0]).format(x=x)
    meta = {
        "hops": len(chain),
        "split": split,
        "entity": subject.name,
        "relations": [relation for _, relation in chain],
        "supporting": [entity.id for entity, _ in chain],
    }
    gold = _gold(answer)
    others = [f"{gold} {unit}" for unit in names.UNITS.get(relation, ())]
    if relation in ("river", "source"):  # "River Orra" may be called "Orra"
        others = [gold.split()[1]]
    return Question(text, [gold, *others] if others else gold, meta)


def _gold(value: Fact) -> str:
    return value.name if isinstance(value, Entity) else str(value)
