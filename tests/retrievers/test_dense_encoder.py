"""Encoders: E5's conventions against plain transformers, pooling, prefixes, weights, the probe."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from retrievers import RetrieverError
from retrievers.dense.encoder import Encoding, load_encoder
from tests.retrievers.dense_cases import hashed, make_index, minilm, rows, tiny_bert

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

TEXTS = ["the cat sat on the mat", "who wrote hamlet ?", "", "old fox " * 200, "a"]


@pytest.fixture(scope="module")
def e5(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("models") / "e5-tiny")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("models") / "bert-tiny")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def by_hand(folder, texts, prefix, pooling="mean", max_length=256):
    """Wang et al. 2022 in plain transformers: prefix, cut, masked mean, length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        batch = tokenizer(
            [prefix + text for text in texts],
            max_length=max_length,
            truncation=True,
            padding=True,
            return_tensors="pt",
        )
        hidden = model.eval()(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    pooled = {
        "mean": (hidden * mask).sum(1) / mask.sum(1),
        "cls": hidden[:, 0],
        "last": hidden[torch.arange(len(texts)), mask[..., 0].sum(1) - 1],
    }[pooling]
    return torch.nn.functional.normalize(pooled, dim=-1).numpy()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_e5_is_masked_mean_of_256_tokens_with_its_prefixes(e5, kind):
    encode, settled = load_encoder(e5, Encoding(""))
    assert (settled.pooling, settled.similarity, settled.max_length) == ("mean", "cosine", 256)
    assert (settled.query_prefix, settled.passage_prefix) == ("query: ", "passage: ")
    want = by_hand(e5, TEXTS, f"{kind}: ")
    np.testing.assert_allclose(unit(encode(TEXTS, kind)), want, atol=1e-6)
    assert np.abs(want - by_hand(e5, TEXTS, "")).max() > 0.01  # the prefix shows


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_poolings_of_a_plain_model(bert, pooling):
    encode, settled = load_encoder(bert, Encoding("", pooling=pooling, max_length=9))
    assert (settled.query_prefix, settled.passage_prefix) == ("", "")
    want = by_hand(bert, TEXTS, "", pooling, max_length=9)
    np.testing.assert_allclose(unit(encode(TEXTS, "passage")), want, atol=1e-6)


def test_a_model_that_tells_no_pooling_needs_one(bert):
    with pytest.raises(RetrieverError, match=r"no modules\.json .*give pooling='mean'"):
        load_encoder(bert, Encoding(""))
    with pytest.raises(RetrieverError, match="pooling must be one of 'mean', 'cls', 'last'"):
        load_encoder(bert, Encoding("", pooling="max"))


def test_minilm_is_as_sentence_transformers_has_it():
    from sentence_transformers import SentenceTransformer

    encode, settled = load_encoder(minilm(), Encoding(""))
    want = SentenceTransformer(str(minilm()), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encode(TEXTS, "query"), want, atol=1e-6)
    assert settled.query_prefix == "" and settled.pooling == "mean"
    with pytest.raises(RetrieverError, match=r"pools by 'mean' \(its modules.json\)"):
        load_encoder(minilm(), Encoding("", pooling="cls"))


def test_prompts_of_the_model_are_the_prefixes_and_options_win(e5, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    modules = [Transformer(str(e5)), Pooling(32, "cls")]
    prompts = {"query": "who ", "document": "the "}
    SentenceTransformer(
        modules=modules, prompts=prompts, similarity_fn_name="dot", device="cpu"
    ).save(str(tmp_path / "e5-own"))
    encode, settled = load_encoder(tmp_path / "e5-own", Encoding(""))
    assert (settled.query_prefix, settled.passage_prefix) == ("who ", "the ")
    assert (settled.pooling, settled.similarity) == ("cls", "ip")
    np.testing.assert_allclose(
        unit(encode(["cat"], "passage")), by_hand(e5, ["the cat"], "", "cls"), atol=1e-6
    )
    _, settled = load_encoder(tmp_path / "e5-own", Encoding("", query_prefix="", similarity="ip"))
    assert (settled.query_prefix, settled.passage_prefix) == ("", "the ")


def test_a_query_has_the_same_bits_in_any_batch():
    encode, _ = load_encoder(minilm(), Encoding(""))
    queries = ["who wrote Hamlet", "x", "a much longer query about the moon " * 5, "", "x y z"]
    together = encode(queries, "query")
    for query, vector in zip(queries, together, strict=True):
        assert encode([query], "query")[0].tobytes() == vector.tobytes()


@pytest.mark.parametrize("name", ["no/such-model", "/nowhere/at-all", "a b c/d/e"])
def test_a_model_that_is_not_there_is_one_line(name):
    with pytest.raises(RetrieverError, match="is no folder here") as raised:
        load_encoder(name, Encoding(""))
    assert "\n" not in str(raised.value)


def test_a_folder_without_a_model_is_one_line(tmp_path):
    with pytest.raises(RetrieverError, match="encoder") as raised:
        load_encoder(tmp_path, Encoding("", pooling="mean"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [{"max_length": 0}, {"similarity": "l2"}, {"precision": "bf16"}, {"dtype": "int8"}],
)
def test_bad_options_name_the_key(tmp_path, options):
    with pytest.raises(RetrieverError, match=next(iter(options))):
        make_index(tmp_path, rows("a"), **options)


def test_other_weights_are_refused(e5, tmp_path):
    other = tiny_bert(tmp_path / "other" / "e5-tiny", seed=1)
    moved = shutil.copytree(e5, tmp_path / "moved")
    make_index(tmp_path / "index", rows(*TEXTS), e5, opening={"encoder": str(moved)})
    with pytest.raises(RetrieverError, match="has weights"):
        make_index(tmp_path / "again", rows(*TEXTS), e5, opening={"encoder": str(other)})
    with pytest.raises(RetrieverError, match=r"not with function .*hashed"):
        make_index(tmp_path / "third", rows(*TEXTS), e5, opening={"encoder": hashed})


def test_a_longer_passage_than_the_first_shows_another_length_limit(e5, tmp_path):
    from retrievers.dense import open_index, write_index
    from retrievers.passages.store import write_passages

    texts = ["b", "the cat sat on the mat under the moon", *["fox"] * 30]
    passages = write_passages(rows(*texts), tmp_path / "passages")
    settings = write_index(passages, tmp_path / "dense", encoder=e5)
    settings["encoding"] = {**settings["encoding"], "max_length": 6}
    with pytest.raises(RetrieverError, match="passage '1' encoded now lies"):
        open_index(passages, tmp_path / "dense", settings)


@pytest.mark.parametrize(
    "change",
    [{"pooling": "cls"}, {"passage_prefix": ""}, {"passage_prefix": "query: "}, {"max_length": 4}],
)
def test_a_manifest_that_misstates_the_encoding_is_found_out(e5, tmp_path, change):
    from retrievers.dense import open_index, write_index
    from retrievers.passages.store import write_passages

    passages = write_passages(rows("the cat sat on the mat", "b"), tmp_path / "passages")
    settings = write_index(passages, tmp_path / "dense", encoder=e5, dtype="float16")
    settings = json.loads(json.dumps(settings))
    open_index(passages, tmp_path / "dense", settings)
    settings["encoding"].update(change)
    with pytest.raises(RetrieverError, match=r"encoded now lies .*another model, pooling"):
        open_index(passages, tmp_path / "dense", settings)
    open_index(passages, tmp_path / "dense", settings, check=False)


FROM_HUB = """
import json, shutil, sys
from pathlib import Path
from retrievers.dense import open_index, write_index
from retrievers.passages.store import write_passages
from tests.retrievers.dense_cases import rows, tiny_bert

here = Path(sys.argv[1])
cache = here / "hub/models--lab--e5-tiny"
for seed, commit in enumerate(("a" * 40, "b" * 40)):
    tiny_bert(cache / "snapshots" / commit, seed)
main = cache / "refs/main"
main.parent.mkdir()
main.write_text("a" * 40)
passages = write_passages(rows("cat", "dog"), here / "passages")
settings = write_index(passages, here / "dense", encoder="lab/e5-tiny")
main.write_text("b" * 40)  # the hub's main branch moves on
open_index(passages, here / "dense", settings).search(["cat"], 1)
print(json.dumps(settings["encoding"]))
"""


def test_a_model_of_the_hub_is_pinned_to_its_commit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FROM_HUB, str(tmp_path)],
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    encoding = json.loads(done.stdout.splitlines()[-1])
    assert (encoding["encoder"], encoding["revision"]) == ("lab/e5-tiny", "a" * 40)
    assert encoding["query_prefix"] == "query: "
