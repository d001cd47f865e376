"""Texts to vectors: any sentence-transformers or transformers encoder, or a function.

A wrong pooling, prefix or length raises no error, it only finds worse passages. So all of it is
settled here once, stands in the index's manifest, and is proved on a stored passage at opening.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from retrievers.base import RetrieverError, well_formed
from retrievers.indexes.options import checked_count

Kind = Literal["query", "passage"]
Encode = Callable[[list[str], Kind], np.ndarray]
"""n texts to their vectors, float32 [n, d]; `kind` says which prefix belongs before them."""

POOLINGS = {"mean": "mean", "cls": "cls", "last": "lasttoken"}  # our names: the library's
INSTALL = "pip install 'mas-gym[dense]'"


@dataclass(frozen=True)
class Encoding:
    """How texts become vectors. None: as the encoder itself says (`load_encoder`).

    encoder: a folder or a Hugging Face id; for a function its name. revision: of the id.
    weights: SHA-256 of the weights. pooling: "mean", "cls" or "last" token. Prefixes stand
    directly before the text.
    max_length: tokens, prefix included; longer texts are cut. similarity: "cosine" (vectors are
    scaled to length 1) or "ip" (inner product of the vectors as they are). precision: of the
    model's weights, "float32" or "float16".
    """

    encoder: str
    revision: str | None = None
    weights: str | None = None
    pooling: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    max_length: int = 256
    similarity: str | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        one_of("similarity", self.similarity, [None, "cosine", "ip"])
        one_of("precision", self.precision, ["float32", "float16"])
        one_of("pooling", self.pooling, [None, *POOLINGS])
        checked_count("max_length", self.max_length)
        for key in ("revision", "query_prefix", "passage_prefix"):
            if not isinstance(value := getattr(self, key), str | None):
                raise RetrieverError(f"{key} must be a string, got {value!r:.80}")


def one_of(key: str, value: object, allowed: list[Any]) -> None:
    """Raise RetrieverError unless `value` is one of those allowed; None is not named."""
    if value not in allowed:
        known = ", ".join(repr(name) for name in allowed if name is not None)
        raise RetrieverError(f"{key} must be one of {known}, got {value!r}")


def load_encoder(
    encoder: str | Path | Encode,
    encoding: Encoding,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    query_batch: int | None = None,
) -> tuple[Encode, Encoding]:
    """The encoder, and `encoding` with every None settled.

    A model with a modules.json (sentence-transformers) pools as that says; for a plain
    transformers model `pooling` is needed, unless its name says E5 (Wang et al. 2022: mean,
    "query: " and "passage: "). Prefixes are the model's own `prompts` where it has some.

    device: "auto" is the GPU if there is one. batch_size: passages encoded together (None: 16 on
    a CPU, 256 on a GPU). query_batch: queries encoded together (None: 1 and 64). With 1 a query's
    vector is the same to the bit whatever it is asked with, for one number of torch threads;
    padding and the shape of a batch move its numbers by some 2e-7 otherwise.
    Raises RetrieverError for a device that is not there, and for a model that cannot be had or
    whose modules.json says otherwise.
    """
    for name, size in (("batch_size", batch_size), ("query_batch", query_batch)):
        if size is not None:
            checked_count(name, size)
    if not callable(encoder) and (not isinstance(encoder, str | Path) or not str(encoder)):
        raise RetrieverError(
            f"encoder must be a folder, a Hugging Face id or a function, got {encoder!r:.80}"
        )
    _check_device(device)
    if callable(encoder):
        settled = replace(encoding, similarity=encoding.similarity or "cosine")
        return encoder, replace(settled, encoder=function_name(encoder))
    folder = _model_folder(str(encoder), encoding.revision)
    try:
        with _no_bar():
            model = _load_model(folder, encoding, str(encoder), device)
        settled = _settled(model, folder, encoding, str(encoder))
    except RetrieverError:
        raise
    except Exception as error:  # whatever a library says to files it does not know
        raise RetrieverError(f"encoder {str(encoder)!r}: {_first_line(error)}") from error
    return _ModelEncoder(model, settled, batch_size, query_batch), settled


def function_name(encode: Encode) -> str:
    """How a function stands in the manifest: "function module.name"."""
    kind = encode if hasattr(encode, "__qualname__") else type(encode)
    return f"function {kind.__module__}.{kind.__qualname__}"


class _ModelEncoder:
    """A SentenceTransformer as an `Encode`; one caller at a time, in the process that loaded it."""

    def __init__(
        self, model: Any, encoding: Encoding, batch_size: int | None, query_batch: int | None
    ) -> None:
        gpu = model.device.type != "cpu"
        self._model = model
        self._prefix = {"query": encoding.query_prefix, "passage": encoding.passage_prefix}
        self._batch = {
            "query": query_batch or (64 if gpu else 1),
            "passage": batch_size or (256 if gpu else 16),
        }
        self._process = os.getpid()
        self._lock = threading.Lock()  # a tokenizer of the Rust library is not for several threads

    def __call__(self, texts: list[str], kind: Kind) -> np.ndarray:
        if os.getpid() != self._process:  # OpenMP's threads, or the GPU's, are not in the child
            raise RetrieverError(
                "this encoder was loaded before the process forked, where torch may hang; "
                "open the index in the child, or start it with the method 'spawn'"
            )
        with self._lock:
            found = self._model.encode(
                [well_formed(text) for text in texts],
                prompt=self._prefix[kind],
                batch_size=self._batch[kind],
                show_progress_bar=False,
            )
        return np.asarray(found, dtype=np.float32)


def _model_folder(encoder: str, revision: str | None) -> Path:
    """The folder of a model: itself, or the hub's snapshot of it (downloaded once)."""
    if Path(encoder).is_dir():
        return Path(encoder)
    download = library("huggingface_hub").snapshot_download
    try:
        wanted = ["*.json", "*.txt", "*.model", "*.safetensors"]
        folder = Path(download(encoder, revision=revision, allow_patterns=wanted))
        if not list(folder.rglob("*.safetensors")):
            wanted.append("*pytorch_model*.bin")
            folder = Path(download(encoder, revision=revision, allow_patterns=wanted))
    except (OSError, ValueError) as error:
        raise RetrieverError(
            f"encoder {encoder!r} is no folder here, and the Hugging Face hub did not give it: "
            f"{_first_line(error)}"
        ) from error
    return folder


def _check_device(device: str) -> None:
    """Raise RetrieverError unless something can be computed on `device`."""
    if device in ("auto", "cpu"):  # torch, which takes seconds to import, need not say so
        return
    try:
        library("torch").zeros(1, device=device).cpu()
    except RetrieverError:
        raise
    except Exception as error:  # torch raises all sorts, even AssertionError
        raise RetrieverError(
            f"device={device!r:.80} is not here ({_first_line(error)}); leave the option out or "
            "give 'cpu'"
        ) from error


@contextlib.contextmanager
def _no_bar() -> Iterator[None]:
    """Without transformers' bar over the loading of weights: it takes a second, and no request."""
    logging = library("transformers").utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def library(name: str) -> Any:
    """The module `name`. Raises RetrieverError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RetrieverError(f"the dense backend needs {name}: {INSTALL} ({error})") from error


def _load_model(folder: Path, encoding: Encoding, name: str, device: str) -> Any:
    make = library("sentence_transformers").SentenceTransformer
    parts = library("sentence_transformers.sentence_transformer.modules")
    where = None if device == "auto" else device
    weights = {"dtype": encoding.precision}
    if (folder / "modules.json").exists():
        return make(str(folder), device=where, model_kwargs=weights, local_files_only=True)
    pooling = encoding.pooling or ("mean" if _is_e5(folder, name) else None)
    if pooling is None:
        raise RetrieverError(
            f"encoder {name!r} has no modules.json to say how its tokens become one vector; "
            "give pooling='mean', 'cls' or 'last', as its model card says"
        )
    one_of("pooling", pooling, list(POOLINGS))
    transformer = parts.Transformer(str(folder), model_kwargs=weights)
    pooled = parts.Pooling(transformer.get_embedding_dimension(), POOLINGS[pooling])
    return make(modules=[transformer, pooled], device=where)


def _settled(model: Any, folder: Path, encoding: Encoding, name: str) -> Encoding:
    """`encoding` completed from the loaded model; sets the model's length limit."""
    model.max_seq_length = min(model.max_seq_length or encoding.max_length, encoding.max_length)
    modes = [part.pooling_mode for part in model.modules() if hasattr(part, "pooling_mode")]
    ours = {theirs: mine for mine, theirs in POOLINGS.items()}
    pooling = ours.get(modes[0], str(modes[0])) if modes else None
    if encoding.pooling is not None and encoding.pooling != pooling:
        raise RetrieverError(
            f"encoder {name!r} pools by {pooling!r} (its modules.json), not by "
            f"pooling={encoding.pooling!r}; leave the option out"
        )
    prompts = {key: text for key, text in model.prompts.items() if text}
    if not prompts and _is_e5(folder, name):
        prompts = {"query": "query: ", "passage": "passage: "}
    query = prompts.get("query", "")
    passage = prompts.get("passage", prompts.get("document", ""))
    own = "ip" if model.similarity_fn_name == "dot" else "cosine"
    return replace(
        encoding,
        encoder=str(folder.resolve()) if Path(name).is_dir() else name,
        revision=None if Path(name).is_dir() else folder.name,  # the commit, for the hub moves on
        weights=_digest(folder),
        pooling=pooling,
        query_prefix=query if encoding.query_prefix is None else encoding.query_prefix,
        passage_prefix=passage if encoding.passage_prefix is None else encoding.passage_prefix,
        max_length=int(model.max_seq_length),
        similarity=encoding.similarity or own,
    )


def _is_e5(folder: Path, name: str) -> bool:
    """Whether this is an E5 model with the plain prefixes (the instruct ones have others)."""
    config = folder / "config.json"
    told = json.loads(config.read_bytes()).get("_name_or_path", "") if config.exists() else ""
    return any(
        re.search(r"(?<![a-z0-9])e5[-_]", word.lower()) and not re.search("instruct|mistral", word)
        for word in (Path(name).name, str(told))
    )


def _digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the weights in `folder` and its modules' folders."""
    weights = [*folder.glob("*.safetensors"), *folder.glob("*/*.safetensors")]
    if not weights:
        weights = [*folder.glob("*.bin"), *folder.glob("*/pytorch_model.bin")]
    digest = hashlib.sha256()
    for path in sorted(weights):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
