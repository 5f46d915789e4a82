"""A text classifier of transformers: loaded only with all its weights, identified by a digest, and run in batches."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import MissingExtraError, ModelError, ParameterError

__all__ = ["Activation", "TextClassifier", "read_classifier"]

Activation = Literal["sigmoid", "softmax"]

_NO_LIMIT = 10**6  # tokenizers without a limit state 10³⁰


@dataclass(frozen=True, slots=True)
class TextClassifier:
    """A network in evaluation mode with its tokenizer.

    Attributes
    ----------
    network, tokenizer
    name : str
        The hub id, or the name of the folder.
    version : str
        The commit on the hub, "local" for a folder.
    """

    network: Any
    tokenizer: Any
    name: str
    version: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of the outputs, in order."""
        names = self.network.config.id2label
        return tuple(str(names[i]) for i in range(len(names)))

    @property
    def activation(self) -> Activation:
        """Return how outputs become probabilities, as the configuration says."""
        several = self.network.config.problem_type == "multi_label_classification"
        return "sigmoid" if several or len(self.labels) == 1 else "softmax"

    @property
    def context(self) -> int:
        """Return how many tokens the network reads: the smaller of its own limit and the tokenizer's."""
        config = self.network.config
        own = int(getattr(config, "max_position_embeddings", None) or _NO_LIMIT)
        # `lm.batching.tokens.context_length` has this rule, too: this package and `lm` do not import each other
        if "roberta" in config.model_type:
            own -= int(config.pad_token_id) + 1  # these models number positions from the index after the padding
        return min(own, int(min(self.tokenizer.model_max_length or _NO_LIMIT, _NO_LIMIT)))

    def digest(self) -> str:
        """Return the SHA-256 over the parameters, by name."""
        sha = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            array = np.ascontiguousarray(tensor.numpy(force=True))
            sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
            sha.update(array.data)
        return sha.hexdigest()

    def probabilities(self, texts: Sequence[str], *, activation: Activation, batch_size: int) -> NDArray[np.float32]:
        """Return the probabilities (n, labels); texts of similar length share a batch."""
        import torch

        probabilities = np.empty((len(texts), len(self.labels)), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            tokens = self.tokenizer(
                [texts[i] for i in batch], padding=True, truncation=True, max_length=self.context, return_tensors="pt"
            )
            with torch.inference_mode():
                logits = self.network(**tokens.to(self.network.device)).logits
                scores = logits.sigmoid() if activation == "sigmoid" else logits.softmax(-1)
            probabilities[batch] = scores.numpy(force=True)
        return probabilities


def read_classifier(
    model: str | os.PathLike[str], *, revision: str | None = None, device: str | None = None
) -> TextClassifier:
    """Return the classifier of a folder or hub id in float32, on ``device``."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "Scoring by a transformer needs torch and transformers: pip install 'repsurgery[lm]'"
        ) from error
    folder = Path(model).expanduser()
    local = folder.is_dir()
    if local and revision is not None:
        raise ParameterError(f"revision={revision!r} is for hub ids; {folder} is a folder. Leave it out.")
    source = str(folder) if local else os.fspath(model)
    try:
        commit = None if local else _commit(source, revision)
        where = {"local_files_only": True} if local else {"revision": commit}
        network, tokenizer = _read(source, {**where, "trust_remote_code": False})
        network = network.to(torch.device(device or "cpu"))
    except ModelError:
        raise
    except _reading_errors() as error:
        raise ModelError(
            f"'{model}' cannot be loaded: {' '.join(str(error).split())} {_remedy(source, local=local)}"
        ) from error
    name = folder.resolve().name if local else source
    return TextClassifier(network, tokenizer, name, commit or "local")


def _commit(source: str, revision: str | None) -> str:
    """Return the commit that ``revision`` names now, so that all files are read from the same commit."""
    from transformers.utils import cached_file

    # the hub's cache keeps a file as snapshots/<commit>/<file>
    return Path(str(cached_file(source, "config.json", revision=revision))).parent.name


def _read(source: str, where: dict[str, Any]) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    network, report = AutoModelForSequenceClassification.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True, **where
    )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"'{source}' is not a trained text classifier: it lacks {len(missing)} weights, which would stay random: "
            f"{', '.join(missing[:3])}. Pass a model that was trained to classify."
        )
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if network.config.pad_token_id is None:
        network.config.pad_token_id = tokenizer.pad_token_id
    return network.eval(), tokenizer


def _remedy(source: str, *, local: bool) -> str:
    if local:
        return "Write model and tokenizer into the folder again with save_pretrained."
    return (
        f"Download it once with a network connection (hf download {source}), after which it is read from the hub's "
        "cache, or pass the folder of a downloaded model."
    )


def _reading_errors() -> tuple[type[Exception], ...]:
    from safetensors import SafetensorError

    return (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)
