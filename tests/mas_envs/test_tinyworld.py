"""Tinyworld read from outside: its texts agree, splits share nothing, questions can be solved."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs import load_tasks
from mas_envs.errors import UserError
from mas_envs.grading import grade_qa
from mas_envs.search.tinyworld import SPLITS, Question, passages, questions, split_of
from mas_envs.search.world import Entity, make_world
from retrievers import BM25, Passage

# relation → the kind of entity that it leads to. A passage names one other entity of a kind.
LEADS_TO = {
    "country": "country", "river": "river", "mayor": "person", "birthplace": "town",
    "school": "school", "teacher": "person", "founder": "person", "seat": "town", "town": "town",
    "architect": "person", "author": "person", "publisher": "company", "painter": "person",
    "museum": "museum",
}  # fmt: skip
SEEDS = (0, 2**40)
seeds = st.integers(0, 2**64)


def kind_of(identity: str) -> str:
    return identity.partition("-")[0]


def words(text: str) -> str:
    return f" {' '.join(re.findall('[a-z0-9]+', text.lower().replace(',', '')))} "


def gold(question: Question) -> str:
    return question.answer if isinstance(question.answer, str) else question.answer[0]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text.replace(",", ""))]


def every_question(seed: int) -> list[Question]:
    return [question for split in SPLITS for question in questions(split, seed=seed)]


@given(seeds)
@settings(max_examples=4, deadline=None)
def test_names_are_unique_and_none_is_part_of_another(seed: int) -> None:
    corpus = passages(seed)
    assert len(corpus) == len({p.id for p in corpus}) == len({words(p.title) for p in corpus})
    assert len(corpus) == 3000
    by_kind: dict[str, list[frozenset[str]]] = {}
    for passage in corpus:
        by_kind.setdefault(kind_of(passage.id), []).append(frozenset(words(passage.title).split()))
    for tokens in by_kind.values():
        assert len(set(tokens)) == len(tokens), "the same words in another order"
        for size in {len(name) for name in tokens}:
            shorter = {name for name in tokens if len(name) < size}
            assert not any(a < b for b in tokens if len(b) == size for a in shorter)


@given(seeds)
@settings(max_examples=4, deadline=None)
def test_the_facts_agree_and_the_passages_tell_them(seed: int) -> None:
    world = make_world(seed)
    for entity, passage in zip(world.entities, world.passages, strict=True):
        assert (passage.id, passage.title) == (entity.id, entity.name)
        text, facts = words(passage.text), entity.facts
        named = [v.name if isinstance(v, Entity) else str(v) for v in facts.values()]
        assert all(words(value) in text for value in [entity.name, *named])
        assert sorted(numbers(passage.text)) == sorted(n for v in named for n in numbers(v))
        assert 1 <= len(re.findall(r"[.](?: |$)", passage.text)) <= 3
        assert not re.search(r"[{}]|  |\ba [AEIO]", passage.text)
        if entity.kind == "country":
            assert facts["capital"].facts["country"] is entity
        if entity.kind == "town":
            assert facts["river"].facts["country"] is facts["country"]
        for maker in ("founder", "author", "painter", "architect"):
            if maker in facts:
                [year] = numbers(passage.text)
                life = facts[maker].facts
                assert life["born"] + 20 < year < life["died"]
        if "publisher" in facts:
            assert facts["publisher"].facts["founded"] < facts["published"]
        if "teacher" in facts:
            assert facts["teacher"].facts["born"] + 18 <= facts["born"]
            assert facts["teacher"].facts["died"] >= facts["born"] + 20
        if "school" in facts:
            assert facts["school"].facts["founded"] < facts["born"] + 15 < facts["died"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_is_what_the_passages_say(seed: int) -> None:
    """A reader who knows only the texts and which kind of thing a relation leads to."""
    corpus = {passage.id: passage for passage in passages(seed)}
    text = {p.id: words(f"{p.title} {p.text}") for p in corpus.values()}
    titled = {passage.title: passage.id for passage in corpus.values()}

    def only(kind: str, passage: Passage) -> str:
        tokens = text[passage.id].split()
        spans = {" ".join(tokens[i : i + n]) for n in (1, 2, 3) for i in range(len(tokens))}
        named = [t for t, i in titled.items() if kind_of(i) == kind and words(t).strip() in spans]
        [other] = [title for title in named if title != passage.title]
        return other

    for question in questions("test", seed=seed, n=600):
        *hops, last = [corpus[identity] for identity in question.meta["supporting"]]
        *first, relation = question.meta["relations"]
        if hops:
            assert only(LEADS_TO[first[0]], hops[0]) == last.title
        if relation in LEADS_TO:
            assert gold(question) == only(LEADS_TO[relation], last)
        elif relation in ("born", "died"):
            born, died = sorted(numbers(last.text))
            assert int(gold(question)) == (born if relation == "born" else died)
        elif relation == "population":
            assert (
                f"{numbers(gold(question))[0]:,}" == gold(question) and gold(question) in last.text
            )
        elif relation in ("currency", "language", "source"):
            assert words(gold(question)) in text[last.id]
        elif relation == "founded" and kind_of(last.id) == "town":
            assert re.search(rf"(ounded (it )?in|dates from) {gold(question)}\b", last.text)
        else:
            assert numbers(last.text) == [int(gold(question))]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_passage_alone_answers_a_two_hop_question(seed: int) -> None:
    texts = [words(f"{p.title} {p.text}") for p in passages(seed)]
    for split in ("dev", "test"):
        for question in questions(split, hops=[2], seed=seed):
            subject, answer = words(question.meta["entity"]), words(gold(question))
            assert not any(subject in text and answer in text for text in texts), question


@pytest.mark.parametrize("seed", SEEDS)
def test_no_question_contains_its_answer(seed: int) -> None:
    asked = every_question(seed)
    assert len({question.question for question in asked}) == len(asked)
    for question in asked:
        assert words(gold(question)) not in words(question.question)
        subject = set(words(question.meta["entity"]).split())
        assert not subject & set(words(gold(question)).split())
        assert not re.search(r"[{}]|  |\b(?:the the|The the)\b", question.question)
        assert question.question.endswith("?") and question.meta["entity"] in question.question
        forms = [question.answer] if isinstance(question.answer, str) else question.answer
        assert all(grade_qa(f"<answer>{form}</answer>", question.answer).correct for form in forms)


@given(seeds)
@settings(max_examples=3, deadline=None)
def test_splits_share_no_subject_no_bridge_and_no_fact(seed: int) -> None:
    title = {passage.id: passage.title for passage in passages(seed)}
    entities, facts = {}, {}
    for split in SPLITS:
        asked = questions(split, seed=seed)
        assert {question.meta["split"] for question in asked} == {split}
        entities[split] = {title[i] for q in asked for i in q.meta["supporting"]}
        facts[split] = {
            fact
            for q in asked
            for fact in zip(q.meta["supporting"], q.meta["relations"], strict=True)
        }
        assert {split_of(name) for name in entities[split]} == {split}
        for hops in (1, 2):
            subjects = [q.meta["entity"] for q in asked if q.meta["hops"] == hops]
            assert len(set(subjects)) == len(subjects) > 150
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not entities[one] & entities[other]
        assert not facts[one] & facts[other]


def test_an_entity_has_the_same_split_in_every_world() -> None:
    train, test = (
        {q.meta["entity"] for seed in (0, 1) for q in questions(split, seed=seed)}
        for split in ("train", "test")
    )
    assert not train & test


def test_sizes_and_no_answer_is_a_good_guess() -> None:
    for split, few, many in (("train", 1000, 1700), ("dev", 200, 700), ("test", 400, 1000)):
        asked = questions(split)
        for hops in (1, 2):
            answers = Counter(gold(q) for q in asked if q.meta["hops"] == hops)
            assert few <= answers.total() <= many
            assert answers.most_common(1)[0][1] / answers.total() < 0.03


@pytest.mark.parametrize("seed", [0, 5])
def test_bm25_finds_one_hop_at_a_time(seed: int) -> None:
    corpus = passages(seed)
    title = {passage.id: passage.title for passage in corpus}
    bm25 = BM25(corpus, k1=0.9, b=0.4)

    def recall(queries: list[str], wanted: list[str]) -> float:
        found = bm25.search(queries, k=3)
        hits = [w in [p.id for p in three] for three, w in zip(found, wanted, strict=True)]
        return sum(hits) / len(hits)

    one = questions("test", hops=(1,), seed=seed)
    assert recall([q.question for q in one], [q.meta["supporting"][0] for q in one]) > 0.97
    two = questions("test", hops=(2,), seed=seed)
    text = [q.question for q in two]
    first, second = zip(*(q.meta["supporting"] for q in two), strict=True)
    assert recall(text, first) > 0.9
    assert recall(text, second) < 0.05, "one search must not do"
    named = [f"{title[q.meta['supporting'][1]]} {q.meta['relations'][1]}" for q in two]
    assert recall(named, second) > 0.97


def test_hops_take_turns_and_an_exhausted_one_leaves_its_place() -> None:
    found = questions("dev", n=100)
    assert [q.meta["hops"] for q in found] == [1, 2] * 50
    assert [q.meta["hops"] for q in questions("dev", hops=[2, 1], n=3)] == [2, 1, 2]
    assert found[1::2] == questions("dev", hops=(2,), n=50)
    everything = questions("dev")
    assert everything[:100] == found
    assert {q.meta["hops"] for q in everything[-100:]} == {1}


DIGEST = "4eb93b4522952fc3"


def digest() -> str:
    told = [list(passage[:3]) for passage in passages()]
    content = json.dumps([told, [list(question) for question in every_question(0)]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def test_world_0_is_pinned() -> None:
    """Task ids are content hashes: a change here orphans every stored episode."""
    assert digest() == DIGEST


def test_another_process_makes_the_same_world() -> None:
    code = f"import runpy; print(runpy.run_path({__file__!r})['digest']())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == DIGEST


def test_seeds_make_different_worlds_and_callers_cannot_spoil_them() -> None:
    assert passages(3) != passages(4)
    assert questions("dev", seed=3) != questions("dev", seed=4)
    mine = passages(3)
    mine.clear()
    questions("dev", seed=3)[0].meta["supporting"].clear()
    assert len(passages(3)) == 3000
    assert questions("dev", seed=3)[0].meta["supporting"]


def test_it_is_a_task_source() -> None:
    tasks = load_tasks("tinyworld", split="dev", hops=[2], n=20)
    assert [task.question for task in tasks] == [q.question for q in questions("dev", [2], n=20)]
    assert all(task.meta["hops"] == 2 and task.meta["split"] == "dev" for task in tasks)
    whole = load_tasks("tinyworld", split="dev")
    assert len(whole) == len({task.id for task in whole}) == len(questions("dev"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "did you mean 'test'"),
        ({"split": "dev", "hops": ()}, r"hops \(\); give \[1\], \[2\] or \[1, 2\]"),
        ({"split": "dev", "hops": (1, 3)}, r"hops \(1, 3\); give"),
        ({"split": "dev", "hops": (1, 1)}, "give"),
        ({"split": "dev", "hops": 2}, "hops 2; give"),
        ({"split": "dev", "hops": "12"}, "hops '12'; give"),
        ({"split": "dev", "hops": [[1]]}, "give"),
        ({"split": "dev", "seed": -1}, "seed is -1"),
        ({"split": "dev", "seed": 1.0}, "seed is 1.0"),
        ({"split": "dev", "seed": "1"}, "seed is '1'"),
        ({"split": "dev", "seed": True}, "seed is True"),
        ({"split": "dev", "n": 0}, "n is 0"),
        ({"split": "dev", "n": 2.5}, "n is 2.5"),
        ({"split": "dev", "n": 10_000}, "has only .* ask for fewer"),
        ({"split": "dev", "hop": (1,)}, "unexpected keyword"),
    ],
)
def test_mistakes_are_user_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_tasks("tinyworld", **arguments)


@pytest.mark.parametrize("seed", [-1, 0.0, None, False])
def test_a_bad_seed_of_the_corpus(seed: object) -> None:
    with pytest.raises(UserError, match="integer of at least 0"):
        passages(seed)  # type: ignore[arg-type]
