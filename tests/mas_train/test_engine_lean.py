"""Decoding in fewer operations equals Hugging Face's forward; threads of small passes."""

import copy

import pytest
import torch

from mas_train.engines import lean_decode, threads
from tests.mas_train.engine_cases import KINDS, answers, build_engine, build_model, ragged

LEAN = [kind for kind in KINDS if lean_decode.can_decode(build_model(kind))]


def test_the_usual_families_are_decoded_lean():
    kinds = {type(build_model(kind)).__name__ for kind in LEAN}
    assert kinds >= {"Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM"}


@pytest.mark.parametrize("kind", LEAN)
def test_lean_and_hugging_faces_decoding_agree(kind):
    """Every hidden state of a ragged run, rows joining and leaving; and so the tokens."""
    engine, compared = build_engine(kind, max_rows=9), []
    own = engine._decoded

    def both(last, positions):
        engine._lean = False
        expected = own(last, positions)  # writes the same keys and values first
        engine._lean = True
        hidden = own(last, positions)
        compared.append((hidden - expected).abs().max().item() / expected.abs().max().item())
        return hidden

    engine._decoded = both
    lean = answers(engine, ragged(40))
    assert len(compared) > 20 and max(compared) < 1e-5
    plain = build_engine(kind, max_rows=9)
    plain._lean = False
    for ours, theirs in zip(lean, answers(plain, ragged(40)), strict=True):
        assert ours.ids.tolist() == theirs.ids.tolist()


def test_another_forward_is_left_alone():
    model = build_model(LEAN[0])
    assert not lean_decode.can_decode(copy.deepcopy(model).double())
    assert not lean_decode.can_decode(copy.deepcopy(model).bfloat16())
    layer = model.base_model.layers[0]

    class Other(type(layer)):
        def forward(self, *args, **options):
            return super().forward(*args, **options) * 2

    layer.__class__ = Other
    assert not lean_decode.can_decode(model)


def test_small_passes_take_one_thread_and_leave_the_number_as_it_was():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with pytest.raises(ZeroDivisionError), threads.threads_for(10, 1000):
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError
        assert torch.get_num_threads() == 3
        with threads.threads_for(2, threads.WORTH_THREADS):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
