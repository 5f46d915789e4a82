"""From texts to rows: the encoders of the paper and the embedded ones, and principal components of their rows."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery import lm
from repsurgery.arrays import Matrix, Vector, row_blocks
from repsurgery.files import digest_of
from repsurgery.lm.load.folder import cache_root
from repsurgery.moments import Moments
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["ENCODERS", "Encoder", "PrincipalAxes", "encode_texts", "encoder_of"]

Pooling = Literal["last", "cls", "mean"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """The model, its pooling of tokens, and its usual number of principal components (0: all dimensions)."""

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
"""The paper's three encoders (the released code uses the chat model) and the embedded ones."""


def encoder_of(spec: StudySpec) -> Encoder:
    """Return the encoder of a study; an unknown name is a folder or a hub id, whose pooling depends on the model."""
    return ENCODERS.get(spec.encoder, Encoder(spec.encoder, None))


def encode_texts(
    spec: StudySpec,
    texts: Sequence[str],
    *,
    work: Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = True,
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return one row per text, and a description of the encoding.

    Rows are stored under ``work`` by the digest of model, texts and settings: an interrupted encoding is resumed, and
    another study of the same texts reuses it.
    """
    encoder = encoder_of(spec)
    model, tokenizer = lm.load(encoder.model, device=device, dtype=dtype)
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
    # in a causal model only the last token attends to the whole text
    return encoder.pooling or ("last" if model.can_generate() else "cls")


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalAxes:
    """The mean (d,) of some rows and their first principal components (d, k), from the exact covariance."""

    mean: Vector
    axes: Matrix

    @classmethod
    def of(cls, X: NDArray[Any], count: int) -> "PrincipalAxes":
        """Return the first ``count`` components of rows (n, d); the largest entry of each is positive."""
        moments = Moments.of(X)
        axes = np.linalg.eigh(moments.covariance)[1][:, ::-1][:, :count]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
        return cls(moments.mean, axes)

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return the coordinates (n, k) of rows (n, d), in float32 as encoders return."""
        out = np.empty((len(X), self.axes.shape[1]), dtype=np.float32)
        for block in row_blocks(*X.shape):
            out[block] = (X[block] - self.mean) @ self.axes
        return out

    def digest(self) -> str:
        """Return the SHA-256 of mean and axes."""
        return digest_of({"mean": np.asarray(self.mean), "axes": self.axes})
