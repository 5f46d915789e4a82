"""The real model that the language-model scripts share, and what is fitted to it once."""

from functools import cache
from typing import Any

import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import load_courtesy, load_prompts

__all__ = ["decoding", "fitted", "loaded", "prompt_tokens", "texts"]

LAYER = 14
"""A middle layer, where the peers add their vectors."""


@cache
def loaded() -> tuple[Any, Any]:
    """Return SmolLM2-135M-Instruct (Q4_1 dequantised, float32) and its tokenizer."""
    return lm.load("smollm2-135m", dtype="float32")


def texts(n: int) -> tuple[list[str], list[str]]:
    """Return ``n`` texts of the embedded corpus and their labels, the two classes in turn."""
    corpus = load_courtesy()
    classes = sorted(corpus.counts)
    found = [[t for t, z in zip(corpus.texts, corpus.labels, strict=True) if z == label] for label in classes]
    mixed = [text for pair in zip(*found, strict=False) for text in pair][:n]
    return mixed, [classes[i % 2] for i in range(len(mixed))]


@cache
def fitted(quick: bool) -> dict[str, Any]:
    """Return a gated dense map for ``final`` and a translation for the middle layer, from every token of some texts."""
    model, tokenizer = loaded()
    some, labels = texts(16 if quick else 200)
    middle = f"layers.{LAYER}"
    moments = lm.class_moments(model, tokenizer, some, labels, sites=["final", middle], pooling="all", progress=False)
    ends = {"source": "rude", "target": "courteous"}
    return {
        "final": rs.MiMiC(**ends, shrinkage="ridge", gate="nearest-mean").fit_moments(moments["final"]).steering_,
        "middle": rs.MeanMatching(**ends).fit_moments(moments[middle]).map_,
    }


def prompt_tokens(batch: int, length: int = 6) -> dict[str, torch.Tensor]:
    """Return the openings of ``batch`` prompts, cut to one length: several peers would steer padding."""
    _, tokenizer = loaded()
    ids = torch.tensor([tokenizer(prompt)["input_ids"][:length] for prompt in load_prompts()[:batch]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def decoding(steps: int) -> dict[str, Any]:
    """Return the settings of a greedy generation of exactly ``steps`` tokens."""
    return {"do_sample": False, "max_new_tokens": steps, "min_new_tokens": steps, "pad_token_id": 0}
