"""The tiny checkpoint behaves like any other through transformers' Auto classes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from mas_train.demo import tiny_model  # noqa: E402

TOKENIZER = tiny_model.build_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model.save(tiny_model.build_model(seed=1), path)
    return path


def test_size_is_what_the_demo_promises() -> None:
    model = tiny_model.build_model()
    assert 200_000 <= model.num_parameters() <= 500_000
    assert model.config.model_type == "qwen3" and model.config.tie_word_embeddings


def test_round_trip_through_the_auto_classes(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    built = tiny_model.build_model(seed=1).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "3+5+8=?\n\\boxed{16} <verify>approve</verify> né\n\n  日本"
    assert tokenizer.encode(text) == TOKENIZER.encode(text)
    assert tokenizer.chat_template == tiny_model.CHAT_TEMPLATE
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, built(ids).logits)


def test_the_seed_decides_the_weights_and_leaves_torch_alone() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (tiny_model.build_model(seed).lm_head.weight for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_survives(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert max(ids, default=0) < 266
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_ids_are_pinned() -> None:
    """The committed weights mean nothing under other ids."""
    chat = [{"role": "user", "content": "3+8=?"}]
    ids = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert ids == [257, 259, 18, 10, 23, 28, 30, 258, 198, 257, 260]
    assert TOKENIZER.encode("\\boxed{1}") == [261, 16, 92]
    assert TOKENIZER.encode("<verify>reject</verify>") == [262, 265, 263]
    assert (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id, len(TOKENIZER)) == (258, 256, 266)


def test_decoding_keeps_what_the_parsers_need() -> None:
    answer = "8 16 \\boxed{16} <verify>approve</verify>"
    ids = TOKENIZER.encode(answer + tiny_model.END)
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == answer


def test_template_is_chatml() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    assert TOKENIZER.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        "<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\n"
    )
