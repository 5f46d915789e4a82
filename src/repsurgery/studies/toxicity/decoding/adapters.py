"""Low-rank adapters by PEFT, on a copy of a model that shares its weights: train them, and run several in one batch."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from repsurgery.errors import DataError, MissingExtraError
from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import Tokens, context_length
from repsurgery.lm.sites.families import text_config
from repsurgery.lm.sites.names import is_conv1d
from repsurgery.lm.twins import shared_copy
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.parts import Made, Workshop
from repsurgery.studies.toxicity.decoding.sampler import Decoder
from repsurgery.studies.toxicity.decoding.training import train

__all__ = [
    "BASE_ROWS",
    "adapted_rows",
    "adapter_arrays",
    "adapter_parameters",
    "train_on_texts",
    "trainable",
    "with_adapters",
]

BASE_ROWS = "__base__"
"""PEFT's name for the rows of a batch that no adapter changes."""
_FLATTENING = ("opt",)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Families whose blocks flatten rows and tokens, and the entries of a configuration by which mixtures are known."""
RANK = 16
BLOCK = 128
"""Tokens of one training block."""
BATCH = 4
"""Blocks of one training step."""
LEARNING_RATE = 3e-4
RECIPE = {"rank": RANK, "block": BLOCK, "batch": BATCH, "learning_rate": LEARNING_RATE}
"""What decides a trained adapter, beside the texts and their number of tokens."""


def with_adapters(model: Any, adapters: Mapping[str, Mapping[str, NDArray[Any]] | None], *, seed: int = 0) -> Any:
    """Return a PEFT model on a copy of ``model`` that shares its weights, with the named adapters.

    Parameters
    ----------
    model
        A transformers decoder; it is not changed.
    adapters : mapping of name to arrays or None
        As `adapter_arrays` returns them; None is a new adapter, which changes nothing until it is trained.
    seed : int
        Of new adapters.
    """
    try:
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    except ImportError as error:
        raise MissingExtraError("Adapters need PEFT: pip install 'repsurgery[rivals]'") from error
    needed = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    transposed = any(is_conv1d(module) for module in model.modules())
    config = LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=transposed
    )
    first, *others = adapters
    with torch.random.fork_rng(), warnings.catch_warnings():
        # PEFT has patterns of its own for mixtures of experts, and warns that some match nothing
        warnings.filterwarnings("ignore", message=".*did not match any targeted module.*")
        torch.manual_seed(seed)
        adapted = get_peft_model(shared_copy(model), config, adapter_name=first)
        for name in others:
            adapted.add_adapter(name, config)
    for name, arrays in adapters.items():
        if arrays is not None:
            tensors = {key: torch.from_numpy(np.array(array)) for key, array in arrays.items()}
            set_peft_model_state_dict(adapted, tensors, adapter_name=name)
    # PEFT freezes the weights, which the copy shares with the model
    for name, parameter in model.named_parameters():
        parameter.requires_grad = needed[name]
    return adapted.eval()


def adapted_rows(adapted: Any, adapters: Sequence[str]) -> Decoder:
    """Return a decoder of rows that have an adapter each; `BASE_ROWS` are rows without one.

    PEFT mixes adapters in one batch, except in models that flatten rows and tokens: OPT and mixtures of experts. There
    each adapter reads its own rows.

    Guarantees
    ----------
    Both ways give the same logits (test_rows_of_several_adapters_are_those_of_each_alone).
    """
    config = text_config(adapted)
    flattens = config.model_type in _FLATTENING or any(getattr(config, name, None) for name in _EXPERTS)
    return _EachAdapter(adapted, adapters) if flattens else CachedModel(adapted, adapters)


class _EachAdapter:
    """One cached model per adapter, which reads the rows of that adapter."""

    def __init__(self, adapted: Any, adapters: Sequence[str]) -> None:
        names = np.array(adapters)
        self._adapted = adapted
        self._rows = {name: torch.from_numpy(np.flatnonzero(names == name)) for name in dict.fromkeys(adapters)}
        self._models = {name: CachedModel(adapted) for name in self._rows}

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self._each(lambda model, rows: model.read(ids[rows], mask[rows]))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._each(lambda model, rows: model.step(tokens[rows]))

    def _each(self, logits_of: Callable[[CachedModel, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        parts = []
        for name, model in self._models.items():
            if name != BASE_ROWS:
                self._adapted.set_adapter(name)
            with self._adapted.disable_adapter() if name == BASE_ROWS else nullcontext():
                parts.append(logits_of(model, self._rows[name]))
        order = torch.cat(list(self._rows.values())).argsort()
        return torch.cat(parts)[order.to(parts[0].device)]


def adapter_arrays(adapted: Any, name: str) -> dict[str, NDArray[Any]]:
    """Return the weights of one adapter."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(adapted, adapter_name=name)
    return {key: tensor.numpy(force=True) for key, tensor in state.items()}


def adapter_parameters(adapted: Any, name: str) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of one adapter."""
    return {key: p for key, p in adapted.named_parameters() if f".{name}." in key and "lora_" in key}


@contextmanager
def trainable(adapted: Any, name: str) -> Iterator[dict[str, torch.nn.Parameter]]:
    """Yield the parameters of one adapter, the only ones that need gradients inside the block."""
    before = {parameter: parameter.requires_grad for parameter in adapted.parameters()}
    chosen = adapter_parameters(adapted, name)
    adapted.set_adapter(name)
    try:
        for parameter in before:
            parameter.requires_grad = False
        for parameter in chosen.values():
            parameter.requires_grad = True
        with torch.enable_grad():
            yield chosen
    finally:
        for parameter, needed in before.items():
            parameter.requires_grad = needed


def train_on_texts(
    model: Any, tokenizer: Any, texts: Sequence[str], *, tokens: int, seed: int, workshop: Workshop, label: str
) -> Made:
    """Continue the training of ``model`` on the first ``tokens`` tokens of ``texts`` in a new adapter.

    The texts are joined by the end token and cut into blocks, which are read once, in a seeded order.
    """
    blocks = _blocks(model, tokenizer, texts, tokens)
    order = np.random.default_rng(seed).permutation(len(blocks))
    steps = -(-len(blocks) // BATCH)
    adapted = with_adapters(model, {"trained": None}, seed=seed)
    device = entry_device(model)

    def loss_of(step: int) -> torch.Tensor:
        ids = blocks[order[step * BATCH : (step + 1) * BATCH]].to(device)
        loss: torch.Tensor = adapted(input_ids=ids, labels=ids).loss
        return loss

    with trainable(adapted, "trained") as parameters:
        loss = train(parameters, loss_of, steps=steps, learning_rate=LEARNING_RATE, workshop=workshop, label=label)
    facts = {"tokens": blocks.numel(), "steps": steps, "last_loss": round(loss, 4)}
    return facts, adapter_arrays(adapted, "trained")


def _blocks(model: Any, tokenizer: Any, texts: Sequence[str], tokens: int) -> torch.Tensor:
    """Return the first ``tokens`` tokens of the joined texts as whole blocks (n, length)."""
    length = min(BLOCK, context_length(model, tokenizer))
    stream: Tokens = []
    for text in texts:
        if len(stream) >= tokens:
            break
        stream += tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        stream += [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    count = min(tokens, len(stream)) // length
    if count < 1:
        raise DataError(
            f"The texts have {len(stream)} tokens and {tokens} were asked for; training needs at least one block of "
            f"{length}. Give more texts or raise tokens."
        )
    return torch.tensor(stream[: count * length]).reshape(count, length)
