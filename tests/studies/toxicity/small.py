"""A whole toxicity study on a tiny random model, in seconds."""

import json

import numpy as np

from repsurgery.studies.toxicity import make_toxicity_spec
from tests.lm.tiny_models import WORDS, tiny_model, tiny_tokenizer

CONFIGURATIONS = [
    "mean selective",
    "mean all strength=0.5",
    "mimic all shrinkage=oas",
    "leace selective",
    "leace all",
    "mimic selective fit=on-policy gate=calibrated shrinkage=oas",
    "mean selective fit=tokens site=layers.0",
]


def make_files(folder, *, scored=True):
    """Write a model, labelled texts, prompts and documents into ``folder``."""
    tiny_model("llama").save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    rng = np.random.default_rng(0)

    def text(words):
        return " ".join(rng.choice(words, size=rng.integers(3, 8)))

    rows = [f"{text(WORDS[:25])},toxic" for _ in range(40)] + [f"{text(WORDS[15:])},clean" for _ in range(40)]
    (folder / "texts.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    prompts = list(dict.fromkeys(text(WORDS) for _ in range(40)))
    with (folder / "prompts.jsonl").open("w") as stream:
        for i, prompt in enumerate(prompts):
            score = {"toxicity": i / len(prompts)} if scored else {}
            stream.write(json.dumps({"prompt": {"text": prompt, **score}}) + "\n")
    (folder / "data" / "wikitext2_raw").mkdir(parents=True)
    pages = [f" = Title {i} = \n {text(WORDS)} \n {text(WORDS)} \n" for i in range(3)]
    (folder / "data" / "wikitext2_raw" / "wiki.test.raw").write_text("".join(pages))


def small_spec(folder, **differences):
    options = {
        "model": str(folder / "model"),
        "fluency": str(folder / "model"),
        "data": str(folder / "texts.csv"),
        "prompts": str(folder / "prompts.jsonl"),
        "target": "clean",
        "max_length": 16,
        "fit_rows": 25,
        "held_out": 10,
        "token_rows": 10,
        "policy_prompts": 8,
        "policy_samples": 4,
        "policy_toxic": 0.05,
        "policy_clean": 0.05,
        "prompt_count": 6,
        "samples": 3,
        "tokens": 5,
        "configurations": CONFIGURATIONS,
        "scorers": ["linear"],
        "fluency_prompts": 4,
        "wikitext_documents": 2,
        "wikitext_length": 8,
        "neutral": 2,
        "gate_prompts": 2,
        "examples": 2,
        "cost_rounds": 0,
        "resamples": 20,
    }
    return make_toxicity_spec("local", **{**options, **differences})
