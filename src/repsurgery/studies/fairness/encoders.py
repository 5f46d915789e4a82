"""Texts to rows: the encoders of the paper and the embedded ones, read once and kept by content."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.lm.load.folder import cache_root
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["ENCODERS", "Encoder", "encode_texts", "encoder_of"]

Pooling = Literal["last", "cls", "mean"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """What is loaded, which token stands for a text, and how many principal components are customary (0: all)."""

    model: str
    pooling: Pooling | None
    components: int = 0


ENCODERS: Mapping[str, Encoder] = MappingProxyType(
    {
        "bert": Encoder("google-bert/bert-base-uncased", "cls"),
        "gpt2": Encoder("openai-community/gpt2", "last"),
        "llama2": Encoder("meta-llama/Llama-2-7b-hf", "last", 768),
        "llama2-chat": Encoder("meta-llama/Llama-2-7b-chat-hf", "last", 768),
        "minilm": Encoder("minilm", "mean"),
        "smollm2-135m": Encoder("smollm2-135m", "last"),
    }
)
"""The paper's three encoders (the released code reads the chat model) and the embedded ones."""


def encoder_of(spec: StudySpec) -> Encoder:
    """Return the encoder a study names; an unknown name is a folder or a hub id, its pooling found on loading."""
    return ENCODERS.get(spec.encoder, Encoder(spec.encoder, None))


def encode_texts(
    spec: StudySpec, texts: Sequence[str], *, work: Path | None = None, progress: bool = True
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return one row per text, and what names the encoding.

    Rows are kept under ``work`` by the digest of model, texts and settings, so an interrupted reading goes on, and
    another study of the same texts reads nothing.
    """
    encoder = encoder_of(spec)
    model, tokenizer = lm.load(encoder.model)
    pooling = _pooling(spec, encoder, model)
    rows = lm.extract(
        model,
        tokenizer,
        texts,
        site=spec.site,
        pooling=pooling,
        max_length=spec.max_length,
        progress=progress,
        work_dir=work or cache_root() / "encodings",
    )
    facts = {
        "name": spec.encoder,
        "model": encoder.model,
        "site": spec.site,
        "pooling": pooling,
        "max_length": spec.max_length,
        "dim": int(rows.shape[1]),
        "digest": hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest(),
    }
    return rows, facts


def _pooling(spec: StudySpec, encoder: Encoder, model: Any) -> Pooling:
    if spec.pooling != "auto":
        return spec.pooling
    # a model that can generate reads from left to right, so only its last token has seen the text
    return encoder.pooling or ("last" if model.can_generate() else "cls")
