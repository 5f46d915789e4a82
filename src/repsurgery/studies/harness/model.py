"""The harness's model type "repsurgery": any model of `lm.load`, steered by a saved file."""

from contextlib import ExitStack
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.batching import context_length
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.score.output_layer import OutputLayer
from repsurgery.lm.steer.positions import Positions
from repsurgery.workflows.steerings import open_steering, recognised

__all__ = ["SteeredLM"]

HARNESS_OPTIONS = frozenset(
    {
        "add_bos_token",
        "batch_size",
        "chat_template_args",
        "enable_thinking",
        "logits_cache",
        "max_batch_size",
        "mixed_precision_dtype",
        "prefix_token_id",
        "softmax_dtype",
        "think_end_token",
        "truncation",
    }
)
"""Arguments of the harness's own Hugging Face model that mean something for a model loaded here."""


@register_model("repsurgery")
class SteeredLM(HFLM):
    """A model of `lm.load`, steered for as long as it lives.

    Parameters
    ----------
    pretrained : str
        An embedded name, a folder, or a hub id.
    steering : str or None
        A file written by `repsurgery.save`; None is the model as it stands.
    site : str or None
    strength : float or None
    positions : {"all", "generated", "prompt", "last"} or None
        None: those of the file, else "final", 1 and "all". See `lm.steer`. In a task that scores texts, the whole input
        counts as the prompt.
    dtype, device, revision
        See `lm.load`; "auto" keeps the dtype of the weights, and a CUDA device that is not there means the CPU.
    max_length : int or None
        Tokens of a window; None is the context, as in `lm.document_perplexity`.
    **options
        Of the harness's own Hugging Face model: `HARNESS_OPTIONS`. ``softmax_dtype`` is float32 unless given, so that
        models in half precision lose nothing in their probabilities.

    Guarantees
    ----------
    Scores are those of `lm.document_perplexity` (test_native_and_harness_agree).
    """

    def __init__(
        self,
        pretrained: str = DEFAULT_MODEL,
        *,
        steering: str | None = None,
        site: str | None = None,
        strength: float | None = None,
        positions: Positions | None = None,
        dtype: str | None = None,
        device: str | None = None,
        revision: str | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> None:
        unknown = sorted(options.keys() - HARNESS_OPTIONS)
        if unknown:
            raise ParameterError(
                f"The model type 'repsurgery' got {', '.join(unknown)}; besides pretrained, steering, site, strength, "
                "positions, dtype, device, revision and max_length it takes " + ", ".join(sorted(HARNESS_OPTIONS)) + "."
            )
        opened = None if steering is None else open_steering(str(steering), site, strength, positions)
        model, tokenizer = lm.load(
            str(pretrained), dtype=None if dtype == "auto" else dtype, device=_present(device), revision=revision
        )
        OutputLayer(model)  # refuses an encoder
        super().__init__(
            pretrained=model,
            tokenizer=tokenizer,
            backend="causal",
            max_length=max_length or context_length(model, tokenizer),
            **{"softmax_dtype": "float32", **options},
        )
        self.surgery: dict[str, Any] = {"model": str(pretrained)}
        self._steered = ExitStack()
        if opened is not None:
            (known,) = recognised([opened], model)
            # the model belongs to this object, whatever thread asks it
            self._steered.enter_context(lm.steer(model, known.steering, threads="all"))
            self.surgery |= {
                "steering": str(steering),
                "steering_digest": known.function.digest(),
                "site": known.site,
                "strength": known.function.origin.strength,
                "positions": known.function.origin.positions,
            }

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness writes about a model, and what steered it."""
        return {**super().get_model_info(), "repsurgery": self.surgery}


def _present(device: str | None) -> str | None:
    # the harness's command line asks for cuda:0 unless told otherwise
    asked_in_vain = device is not None and device.startswith("cuda") and not torch.cuda.is_available()
    return None if asked_in_vain else device
