"""The content fingerprint of SmolLM2, all 135M weights: what a resumable job costs before it begins."""

from benchmarks import smollm2
from benchmarks.clock import interleaved
from benchmarks.lines import Line, Settings, at_most, fact
from repsurgery import lm
from repsurgery.lm.load.fingerprint import tokenizer_fingerprint


def run(settings: Settings) -> list[Line]:
    """Measure the digest in float32 and bfloat16, that of the weights alone, and that of the tokenizer."""
    whole, tokenizer = smollm2.loaded()
    half, _ = lm.load("smollm2-135m", dtype="bfloat16")
    found = interleaved(
        {
            "float32": lambda: lm.fingerprint(whole),
            "bfloat16": lambda: lm.fingerprint(half),
            "rounded": lambda: lm.fingerprint(whole, ignore_dtype=True),
            "rounded half": lambda: lm.fingerprint(half, ignore_dtype=True),
            "tokenizer": lambda: tokenizer_fingerprint(tokenizer),
        },
        rounds=settings.rounds(768),
    )
    size = sum(p.numel() * p.element_size() for p in whole.parameters()) / 2**20
    agree = found.results["rounded"] == found.results["rounded half"]
    return [
        at_most("fingerprint, float32", found.of("float32"), 1.0, "s", f"{size:.0f} MiB of weights"),
        at_most("fingerprint, bfloat16", found.of("bfloat16"), 1.0, "s"),
        at_most("fingerprint of the weights alone (ignore_dtype), float32", found.of("rounded"), 1.0, "s"),
        fact("the same digest in float32 and bfloat16 (1: yes)", float(agree)),
        fact("fingerprint of the tokenizer", found.of("tokenizer"), "s"),
    ]
