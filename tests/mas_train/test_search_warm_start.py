"""The team that searches: its tokenizer, its demonstrators' habits, and its committed model."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from mas_envs.search.tinyworld import passages, questions, split_of  # noqa: E402
from mas_envs.search.world import make_world  # noqa: E402
from mas_train.demo import imitation, search_demonstrations, search_model  # noqa: E402
from mas_train.demo import search_warm_start as warm_start  # noqa: E402
from mas_train.demo.search_demonstrations import Habits, conversations  # noqa: E402

TOKENIZER = search_model.build_tokenizer()


# -- the tokenizer ---------------------------------------------------------------------------------


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_survives(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert max(ids, default=0) < len(TOKENIZER)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_names_and_years_are_one_token_a_word() -> None:
    for world in (0, 5):  # names are drawn anew in every world
        for entity in make_world(world).entities[::7]:
            name = f" {entity.name}"
            assert len(TOKENIZER.encode(name)) == len(name.split()), name
    for year in ("(1773", " 1898", "–1836"):
        assert TOKENIZER.decode([TOKENIZER.encode(year)[-1]]) == year[1:]


def test_words_are_tokens_but_for_two_that_open_a_question() -> None:
    told = [f"[1] {one.title}: {one.text}" for one in passages()[::5]]
    asked = [one.question for split in ("train", "dev", "test") for one in questions(split)]
    bytes_ = {
        TOKENIZER.decode([token])
        for text in told + [re.sub("^(At|Through) ", " ", one) for one in asked]
        for token in TOKENIZER.encode(text)
        if token < 256
    }
    assert not {one for one in bytes_ if one.isalpha()}
    assert {"?", "7", "[", "("} < bytes_


def test_a_name_is_the_same_tokens_in_question_passage_query_and_answer() -> None:
    name = TOKENIZER.encode(" Beata Horvath")
    for text in (
        "What is the birth year of Beata Horvath?",
        "[1] Beata Horvath: Beata Horvath (1800–1870), an architect",
        "<search> Beata Horvath</search>",
        "<answer> Beata Horvath</answer>",
    ):
        ids = TOKENIZER.encode(text)
        assert any(ids[i : i + 2] == name for i in range(len(ids))), text


# -- the demonstrators -----------------------------------------------------------------------------


def rows_of(habits: Habits, count: int, worlds: tuple[int, ...] = (1,)) -> list[tuple[str, str]]:
    """(what is shown, what is answered) of `count` episodes."""
    episodes = conversations(habits, random.Random(3), worlds)
    return [(shown[-1].content, text) for _ in range(count) for _, (shown, text) in next(episodes)]


@cache
def facts(world: int) -> dict[str, search_demonstrations.Question]:
    return {one.question: one for one in questions("train", hops=[1], seed=world)}


def test_the_careful_are_always_right_and_get_there_in_one_search() -> None:
    known = facts(1)
    found = rows_of(Habits(), 100)
    assert len(found) == 4 * 100  # look, search, look, answer
    for shown, text in found:
        task = known[shown.split("\n")[0]]
        has = f"[1] {task.meta['entity']}:" in shown
        if shown.endswith("enough?"):
            assert text == f"<verify>{'yes' if has else 'no'}</verify>"
        elif shown.endswith("query:"):
            assert task.meta["entity"].endswith(text[len("<search> ") : -len("</search>")])
        else:
            golds = [task.answer] if isinstance(task.answer, str) else task.answer
            assert has and text == f"<answer> {golds[0]}</answer>"


def test_strays_show_every_situation_and_right_answers_to_it() -> None:
    found = rows_of(search_demonstrations.SKILL, 300)
    known = facts(1)
    wrong_passage = missing = 0
    for shown, text in found:
        has = f"[1] {known[shown.split(chr(10))[0]].meta['entity']}:" in shown
        if shown.endswith("enough?"):
            assert ("yes" in text) == has
            wrong_passage += "[1]" in shown and not has
            missing += "[1]" not in shown
    assert wrong_passage > 30 and missing > 200


def test_shares_are_the_habits() -> None:
    habits = Habits(check=0.4, aim=0.3, read=0.6)
    known = facts(1)
    right: dict[str, list[bool]] = {"enough?": [], "query:": [], "answer:": []}
    for shown, text in rows_of(habits, 1500):
        task = known[shown.split("\n")[0]]
        has = f"[1] {task.meta['entity']}:" in shown
        said = re.sub(r"</?\w+>", "", text).strip()
        golds = [task.answer] if isinstance(task.answer, str) else task.answer
        role = shown.rsplit("\n", 1)[1]
        if role == "enough?":
            right[role].append((said == "yes") == has)
        elif role == "query:" and " " in (name := task.meta["entity"].removeprefix("The ")):
            right[role].append(said == name)
        elif has:
            right[role].append(said in golds)
    shares = {role: sum(found) / len(found) for role, found in right.items()}
    assert shares["enough?"] == pytest.approx(0.4 + 0.6 / 2, abs=0.04)
    assert shares["query:"] == pytest.approx(0.3, abs=0.04)
    assert shares["answer:"] == pytest.approx(0.6, abs=0.06)


def test_only_training_entities_of_other_worlds_are_asked_about() -> None:
    assert 0 not in search_demonstrations.WORLDS
    seen = set()
    for shown, _ in rows_of(search_demonstrations.SKILL, 60, (1, 2)):
        question = shown.split("\n")[0]
        world = next(one for one in (1, 2) if question in facts(one))
        seen.add(world)
        assert split_of(facts(world)[question].meta["entity"]) == "train"
    assert seen == {1, 2}


def test_every_answer_fits_the_recipes_tokens() -> None:
    from mas_train.config import load
    from mas_train.recipes import recipe

    limit = load(recipe("tinyworld_cpu")).rollout.max_tokens
    texts = {text for _, text in rows_of(search_demonstrations.NOISY, 400)}
    assert max(len(TOKENIZER.encode(text)) for text in texts) < limit


# -- the lessons -----------------------------------------------------------------------------------


def test_the_loss_is_that_of_all_logits() -> None:
    """Only the logits that count are computed; here are all of them."""
    model = search_model.build_model(2)
    rows = next(warm_start.batches(warm_start.LESSONS[0], random.Random(0)))[:6]
    ids, labels = imitation.encode(rows, TOKENIZER)
    pad = TOKENIZER.pad_token_id
    answers = imitation.answer_loss(model, ids, labels)
    assert warm_start.reading_loss(0.0, pad)(model, ids, labels).item() == pytest.approx(
        answers.item(), rel=1e-5
    )
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    read = ids[:, 1:].flatten()
    whole = torch.nn.functional.cross_entropy(logits, read.where(read != pad, -100))
    both = warm_start.reading_loss(0.5, pad)(model, ids, labels)
    assert both.item() == pytest.approx((answers + 0.5 * whole).item(), rel=1e-5)


def test_lessons_go_on_where_they_stopped(tmp_path: Path) -> None:
    short = [
        warm_start.SearchLesson(search_demonstrations.SKILL, steps=2, lr=1e-3, batch=4, prompts=p)
        for p in (1.0, 0.0)
    ]
    warm_start.warm_start(tmp_path / "whole", 5, tuple(short))
    warm_start.warm_start(tmp_path / "parts", 5, tuple(short[:1]))
    warm_start.warm_start(tmp_path / "parts", 5, tuple(short))
    weights = [(tmp_path / one / "model.safetensors").read_bytes() for one in ("whole", "parts")]
    assert weights[0] == weights[1]
    records = [(tmp_path / one / "warm_start.json").read_text() for one in ("whole", "parts")]
    assert records[0] == records[1] and len(json.loads(records[0])["final_loss"]) == 2


# -- the committed checkpoint ----------------------------------------------------------------------


def test_committed_weights_are_small_and_belong_to_this_script() -> None:
    size = sum(path.stat().st_size for path in search_model.WEIGHTS.iterdir())
    assert size < 3_000_000
    record = json.loads((search_model.WEIGHTS / "warm_start.json").read_text())
    lessons = json.loads(json.dumps([asdict(one) for one in warm_start.LESSONS]))
    assert record["lessons"] == lessons and len(record["final_loss"]) == len(lessons)
    tokenizer = transformers.AutoTokenizer.from_pretrained(search_model.WEIGHTS)
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()


def test_committed_model_knows_how_and_often_does_not_bother() -> None:
    """On questions of a world, and about entities, that it has never seen: as much as there is for
    reinforcement learning to bring out. Greedy decoding, the right passage shown.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(search_model.WEIGHTS).eval()
    prompts, told = search_demonstrations.tiny_prompts(), {one.id: one for one in passages()}
    right: dict[str, list[float]] = {"search": [], "answer": []}
    for task in questions("test", hops=[1])[:60]:
        gold = task.answer if isinstance(task.answer, str) else task.answer[0]
        passage = told[task.meta["supporting"][0]]
        name = task.meta["entity"].removeprefix("The ")
        fields = {"question": task.question}
        shown = [{"passages": f"[1] {passage.title}: {passage.text}"}]
        rows = [
            (prompts.messages("search", fields), f"<search> {name}</search>"),
            (prompts.messages("answer", fields, shown), f"<answer> {gold}</answer>"),
        ]
        ids, labels = imitation.encode(rows, TOKENIZER)
        with torch.no_grad():
            log_probs = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
        answered = labels[:, 1:] != -100
        each = log_probs.gather(-1, ids[:, 1:, None])[..., 0] * answered
        for role, value in zip(right, each.sum(1).exp().tolist(), strict=True):
            right[role].append(value)  # the probability of the whole right text
    for role, most in (("search", 0.4), ("answer", 0.45)):
        share = sum(right[role]) / len(right[role])
        assert 0.1 < share < most + 0.05, role
        assert max(right[role]) > 0.3, role
