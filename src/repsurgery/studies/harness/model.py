"""The model type "repsurgery" of the harness: any model of `lm.load`, steered by a saved file."""

from contextlib import ExitStack
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.batching.tokens import context_length
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.score.output_layer import OutputLayer
from repsurgery.lm.score.perplexity import WINDOWS
from repsurgery.lm.steer.positions import UNKNOWN_TURNS, Positions, Texts
from repsurgery.lm.steer.texts import reading_texts
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
"""Arguments of the harness's Hugging Face model that apply to a model loaded by this package."""


@register_model("repsurgery")
class SteeredLM(HFLM):
    """A model of `lm.load` that is steered throughout its lifetime.

    Parameters
    ----------
    pretrained : str
        An embedded name, a folder, or a hub id.
    steering : str or None
        A file written by `repsurgery.save`; None means the unsteered model.
    site : str or None
    strength : float or None
    scale : float
        Multiplies the strength.
    positions : {"all", "generated", "prompt", "last", "assistant"} or None
        None means the values in the file, and "final", 1 and "all" if it has none. See `lm.steer`. In a task that
        scores continuations the context is the prompt. In a task that scores whole documents every token of a window
        but the first counts as generated, as in `lm.document_perplexity`, and steerings of prompts are refused.
    dtype, device, revision
        See `lm.load`; "auto" keeps the dtype of the weights, and the CPU replaces a CUDA device that is not available.
    max_length : int or None
        Tokens in a window; None means the context length, as in `lm.document_perplexity`.
    **options
        Options of the harness's Hugging Face model: `HARNESS_OPTIONS`. ``softmax_dtype`` is float32 by default, so
        that the probabilities of models in half precision are accurate.

    Guarantees
    ----------
    Scores are equal to those of `lm.document_perplexity` (test_native_and_harness_agree), and those of continuations
    to `lm.log_likelihoods` at all positions (test_continuations_are_scored_at_the_positions_of_generation).
    """

    def __init__(
        self,
        pretrained: str = DEFAULT_MODEL,
        *,
        steering: str | None = None,
        site: str | None = None,
        strength: float | None = None,
        scale: float = 1.0,
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
                "scale, positions, dtype, device, revision and max_length it takes "
                + ", ".join(sorted(HARNESS_OPTIONS))
                + "."
            )
        opened = None if steering is None else open_steering(str(steering), site, strength, positions, scale=scale)
        model, tokenizer = lm.load(
            str(pretrained), dtype=None if dtype == "auto" else dtype, device=_available(device), revision=revision
        )
        OutputLayer(model)  # raises for an encoder
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
            opened.warn_about_strength()
            (known,) = recognised([opened], model)
            # the model belongs to this object, so calls from all threads are steered
            self._steered.enter_context(lm.steer(model, known.placement, threads="all"))
            self.surgery |= {
                "steering": str(steering),
                "steering_digest": known.placement.function.digest(),
                "site": known.placement.site,
                "strength": known.placement.strength,
                "positions": known.placement.positions,
            }

    def _loglikelihood_tokens(self, requests: Any, *args: Any, **how: Any) -> Any:
        """Score (text, context, continuation) requests, each group with prompts of one length together."""
        if self.surgery.get("positions", "all") == "all":
            return super()._loglikelihood_tokens(requests, *args, **how)
        groups: dict[int | None, list[int]] = {}
        for i, (text, context, continuation) in enumerate(requests):
            # windows of a document come without a text; longer inputs lose tokens from the left
            cut = max(0, len(context) + len(continuation) - self.max_length - 1)
            groups.setdefault(None if text is None else len(context) - cut, []).append(i)
        found: dict[int, Any] = {}
        for prompt, members in groups.items():
            texts = WINDOWS if prompt is None else Texts(prompt, UNKNOWN_TURNS, refused=("assistant",))
            with reading_texts(texts):
                scored = super()._loglikelihood_tokens([requests[i] for i in members], *args, **how)
            found.update(zip(members, scored, strict=True))
        return [found[i] for i in range(len(requests))]

    def get_model_info(self) -> dict[str, Any]:
        """Return the harness's description of the model, and that of its steering."""
        return {**super().get_model_info(), "repsurgery": self.surgery}


def _available(device: str | None) -> str | None:
    # cuda:0 is the default of the harness's command line
    absent = device is not None and device.startswith("cuda") and not torch.cuda.is_available()
    return None if absent else device
