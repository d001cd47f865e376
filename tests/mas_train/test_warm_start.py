"""Demonstrations have the habits they claim; the warm start learns, repeats, and was committed."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import mas_envs.math.arith as arith  # noqa: E402
from mas_train.demo import demonstrations, tiny_model, warm_start  # noqa: E402
from mas_train.demo.demonstrations import Habits, conversation, running_sums  # noqa: E402

PROMPTS = demonstrations.tiny_prompts()


def conversations(habits: Habits, count: int, level: int = 2) -> list[list[tuple[str, str]]]:
    """(what is shown, what is answered) of each row of `count` conversations."""
    rng = random.Random(5)
    found = []
    for _ in range(count):
        operands = [rng.randint(1, 9) for _ in range(level + 2)]
        rows = conversation(operands, level, habits, PROMPTS, rng)
        found.append([(messages[-1].content, answer) for messages, answer in rows])
    return found


def total_of(shown: str) -> int:
    return sum(map(int, shown.split("=?")[0].split("+")))


def test_running_sums() -> None:
    assert running_sums([8, 5, 4]) == "13 17 "


def test_worked_out_answers_are_right_and_guesses_wrong() -> None:
    for rows in conversations(demonstrations.NOISY, 500):
        (question, draft), (asked, review), *retry = rows
        assert asked == f"{question}\n{draft}"
        boxed = re.search(r"boxed\{(\d+)\}", draft)
        if draft[0].isdigit():
            assert boxed and int(boxed[1]) == total_of(question)
        elif boxed:
            assert 1 <= total_of(question) - int(boxed[1]) <= 9
        if review[0].isdigit():
            right = bool(boxed) and int(boxed[1]) == total_of(question)
            assert ("approve" in review) == right
        if "reject" in review:
            [(shown, _)] = retry
            assert shown == f"{question}\nnot {boxed[1] if boxed else 'none'}"
        else:
            assert not retry


def test_shares_are_the_habits() -> None:
    habits = Habits(steps={2: 0.3}, no_box=0.2, check=0.4, no_tags=0.1)
    rows = conversations(habits, 4_000)
    drafts = [row[0][1] for row in rows]
    reviews = [row[1][1] for row in rows]
    guesses = [draft for draft in drafts if not draft[0].isdigit()]
    hunches = [review for review in reviews if not review[0].isdigit()]
    assert len(guesses) / len(drafts) == pytest.approx(0.7, abs=0.03)
    assert sum("boxed" not in draft for draft in guesses) / len(guesses) == pytest.approx(
        0.2, abs=0.03
    )
    assert len(hunches) / len(reviews) == pytest.approx(0.6, abs=0.03)
    assert sum("<" not in review for review in hunches) / len(hunches) == pytest.approx(
        0.1, abs=0.03
    )


def test_every_row_fits_forty_tokens_of_answer() -> None:
    tokenizer = tiny_model.build_tokenizer()
    for level in (1, 2, 3):
        for rows in conversations(demonstrations.SKILL, 200, level):
            assert max(len(tokenizer.encode(answer)) for _, answer in rows) < 40


def test_labels_cover_exactly_the_answers() -> None:
    tokenizer = tiny_model.build_tokenizer()
    rows = [
        row
        for _ in range(4)
        for row in conversation([3, 5, 8], 1, Habits(), PROMPTS, random.Random(1))
    ]
    ids, labels = warm_start.encode(rows, tokenizer)
    for row, (messages, answer) in enumerate(rows):
        learned = ids[row][labels[row] != -100]
        assert torch.equal(learned, labels[row][labels[row] != -100])
        assert tokenizer.decode(learned) == answer + tiny_model.END
        prompt = tokenizer.decode(ids[row][: int((labels[row] != -100).nonzero()[0])])
        assert prompt.endswith("<|im_start|>assistant\n") and messages[0].content in prompt


def test_only_training_problems_are_demonstrated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    original = demonstrations.conversation

    def spy(operands, *rest):  # type: ignore[no-untyped-def]
        seen.add(arith.canonical(operands))
        return original(operands, *rest)

    monkeypatch.setattr(demonstrations, "conversation", spy)
    lesson = warm_start.Lesson(demonstrations.NOISY, steps=3, lr=1e-3)
    warm_start.train(lesson, tiny_model.build_model(), seed=0)
    assert len(seen) > 50
    assert {arith.split_of(form) for form in seen} == {"train"}


@pytest.mark.slow
def test_twenty_steps_learn_and_repeat_bit_for_bit(tmp_path: Path) -> None:
    lessons = (warm_start.Lesson(demonstrations.SKILL, steps=20, lr=4e-3),)
    hashes = []
    for run in ("a", "b"):
        warm_start.warm_start(tmp_path / run, seed=7, lessons=lessons)
        weights = (tmp_path / run / "model.safetensors").read_bytes()
        hashes.append(hashlib.sha256(weights).hexdigest())
        record = json.loads((tmp_path / run / "warm_start.json").read_text())
        assert record["final_loss"][0] < 5.0
    assert hashes[0] == hashes[1]
    assert (
        hashes[0]
        != hashlib.sha256((tiny_model.WEIGHTS / "model.safetensors").read_bytes()).hexdigest()
    )


# -- the committed checkpoint ---------------------------------------------------------------


def test_committed_weights_are_small_and_belong_to_this_script() -> None:
    size = sum(path.stat().st_size for path in tiny_model.WEIGHTS.iterdir())
    assert size < 3_000_000
    record = json.loads((tiny_model.WEIGHTS / "warm_start.json").read_text())
    lessons = json.loads(json.dumps([warm_start.asdict(one) for one in warm_start.LESSONS]))
    assert record["lessons"] == lessons


@pytest.mark.parametrize("level", [1, 2, 3])
def test_committed_model_can_add_but_rarely_bothers(level: int) -> None:
    """Greedy decoding of the two modes: forced to work it out it is right; left alone it guesses.

    This is the room reinforcement learning has; without it the demo shows nothing.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model.WEIGHTS).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model.WEIGHTS)
    right = bothers = 0.0
    problems = arith.problems("test", levels=(level,), n=50)
    for problem in problems:
        messages = PROMPTS.messages("solver", {"question": problem.question})
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": messages[-1].content}],
            add_generation_prompt=True,
            return_dict=False,
        )
        answer = running_sums(problem.meta["operands"]) + f"\\boxed{{{problem.answer}}}"
        target = tokenizer.encode(answer + tiny_model.END)
        with torch.no_grad():
            logits = model(torch.tensor([prompt + target])).logits[0, len(prompt) - 1 : -1]
        digits = [token for token in range(256) if tokenizer.decode([token]).isdigit()]
        bothers += float(logits[0].softmax(-1)[digits].sum())
        first = digits[int(logits[0][digits].argmax())]
        right += first == target[0] and logits[1:].argmax(-1).tolist() == target[1:]
    assert right / len(problems) > 0.8
    share = demonstrations.NOISY.steps[level]
    assert bothers / len(problems) == pytest.approx(share, abs=0.15)
