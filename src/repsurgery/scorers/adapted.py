"""A BERT encoder with low-rank adapters, mean pooling and a head of two layers: its file, and how it runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.errors import MissingExtraError, ModelError

__all__ = [
    "AdaptedEncoder",
    "adapted",
    "batches_by_length",
    "logits_of",
    "make_head",
    "outputs_in_batches",
    "read_encoder",
    "well_formed",
]

_BLOCK = 8192
"""Texts that are tokenised at a time, so that memory does not grow with the number of texts."""
_BATCH_TOKENS = 2048
"""The largest number of tokens in a batch, padding included."""
_TOKENISING = Lock()


@dataclass(frozen=True, slots=True)
class AdaptedEncoder:
    """An encoder whose adapters are merged into its weights, W + U D, with its tokenizer and head.

    Attributes
    ----------
    network, tokenizer, head
    max_tokens : int
        The number of tokens that are read from the beginning of each text, the two special ones included.
    """

    network: Any
    tokenizer: Any
    head: Any
    max_tokens: int

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability (n,) of each text; texts of similar length share a batch."""
        scores = np.empty(len(texts), dtype=np.float64)
        for index, logits in outputs_in_batches(
            self.network, self.head, self.tokenizer, texts, max_tokens=self.max_tokens
        ):
            scores[index] = logits[:, 0].double().sigmoid().numpy()
        return scores


def outputs_in_batches(
    network: Any, head: Any, tokenizer: Any, texts: Sequence[str], *, max_tokens: int
) -> Iterator[tuple[NDArray[np.intp], Any]]:
    """Yield indices (b,) of texts and the outputs (b, k) of `logits_of` on their first ``max_tokens`` tokens.

    Texts of similar length share a batch, so that little is spent on padding. Threads may share all arguments.
    """
    import torch

    for start in range(0, len(texts), _BLOCK):
        block = [well_formed(text) for text in texts[start : start + _BLOCK]]
        # a tokenizer stores the length to cut at, which some versions refuse while another thread uses it
        with _TOKENISING:
            rows = tokenizer(block, truncation=True, max_length=max_tokens)["input_ids"]
        for batch in batches_by_length([len(row) for row in rows], tokens=_BATCH_TOKENS):
            with torch.inference_mode():
                outputs = logits_of(network, head, [rows[i] for i in batch])
            yield start + batch, outputs


def well_formed(text: str) -> str:
    """Return ``text`` with half characters (lone surrogates), which no tokenizer takes, as replacement characters."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def batches_by_length(lengths: Sequence[int], *, tokens: int) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of rows, shortest first, in batches of at most ``tokens`` tokens with padding."""
    order = np.argsort(np.asarray(lengths, dtype=np.intp), kind="stable")
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= tokens:
            stop += 1
        yield order[start:stop]
        start = stop


def logits_of(network: Any, head: Any, rows: Sequence[Sequence[int]]) -> Any:
    """Return the outputs (n, k) of the head on the mean of the hidden states of each row of token ids."""
    import torch

    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    hidden = network(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = mask[..., None].to(hidden.dtype)
    return head((hidden * weights).sum(1) / weights.sum(1))


def read_encoder(folder: Path) -> tuple[Any, Any]:
    """Return the encoder in ``folder`` in float32 and evaluation mode, without its pooling layer, and its tokenizer."""
    try:
        import torch
        from transformers import AutoTokenizer, BertConfig, BertModel
    except ImportError as error:
        raise MissingExtraError(
            "Scoring by a transformer needs torch and transformers: pip install 'repsurgery[lm]'"
        ) from error
    from safetensors.torch import load_file

    # built from the configuration, because `from_pretrained` reports the pooling layer, which is not used, as a problem
    network = BertModel(BertConfig.from_pretrained(folder), add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    report = network.load_state_dict(weights, strict=False)
    if report.missing_keys:
        raise ModelError(f"{folder} lacks weights of the encoder: {', '.join(report.missing_keys[:3])}.")
    return network.to(torch.float32).eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def make_head(width: int, hidden: int, outputs: int = 1) -> Any:
    """Return the head: a linear layer, GELU, and a linear layer without a nonlinearity."""
    from torch import nn

    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def adapted(encoder: tuple[Any, Any], arrays: Mapping[str, NDArray[Any]], *, max_tokens: int) -> AdaptedEncoder:
    """Return an encoder of `read_encoder`, which is changed, with the adapters and the head in ``arrays``.

    ``arrays`` holds D (r, in) as "<module>.down" and U (out, r) as "<module>.up" for each adapted linear layer, and the
    parameters of the head as "head.<name>". They may be stored in float16; all arithmetic is in float32.

    Raises
    ------
    ValueError, LookupError, AttributeError
        The arrays do not belong to this encoder.
    """
    import torch

    network, tokenizer = encoder
    tensors = {name: torch.from_numpy(np.asarray(array, dtype=np.float32)) for name, array in arrays.items()}
    state = {name.removeprefix("head."): tensor for name, tensor in tensors.items() if name.startswith("head.")}
    hidden, width = state["0.weight"].shape
    head = make_head(width, hidden)
    try:
        with torch.no_grad():
            for name in [name.removesuffix(".down") for name in tensors if name.endswith(".down")]:
                network.get_submodule(name).weight += tensors[f"{name}.up"] @ tensors[f"{name}.down"]
        head.load_state_dict(state)
    except RuntimeError as error:  # torch's error of shapes and of names
        raise ValueError(" ".join(str(error).split())) from error
    return AdaptedEncoder(network, tokenizer, head.eval(), max_tokens)
