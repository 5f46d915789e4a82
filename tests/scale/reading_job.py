"""What ``torchrun`` runs: ranks read texts by a tiny model, and write down what they found and were told."""

import json
import sys
from pathlib import Path

from torch import distributed

from repsurgery import lm
from repsurgery.errors import SurgeryError
from repsurgery.scale import class_moments
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.scale.reading import LABELS, TEXTS


def main(folder: Path) -> None:
    told = {}
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    options = {"sites": lm.site_names(model), "batch_size": 4, "progress": False}

    def refused(texts, labels, model=model, **changes):
        passes = Interrupting(model, stop=None)
        try:
            class_moments(model, tokenizer, texts, labels, **{**options, **changes})
        except SurgeryError as error:
            return [type(error).__name__, str(error), passes.passes]
        finally:
            passes.remove()

    told["no group"] = refused(TEXTS, LABELS)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    told["site"] = refused(TEXTS, LABELS, sites=["final", "layers.7"])
    told["labels"] = refused(TEXTS, LABELS[:-1])
    told["texts"] = refused(TEXTS[rank:], LABELS[rank:])
    told["models"] = refused(TEXTS, LABELS, model=tiny_model("llama", seed=rank))

    def kept(name, found):
        for site, moments in found.items():
            moments.save(folder / f"{name}-{site}-{rank}.safetensors")

    passes = Interrupting(model, stop=None)
    kept("last", class_moments(model, tokenizer, TEXTS, LABELS, **options))
    told["passes"] = passes.passes
    kept("all", class_moments(model, tokenizer, TEXTS, LABELS, pooling="all", **options))
    kept("one", class_moments(model, tokenizer, TEXTS[:1], LABELS[:1], **options))
    passes.remove()

    stopped = Interrupting(model, stop=3)
    try:
        class_moments(model, tokenizer, TEXTS, LABELS, work_dir=folder / "work", **options)
    except KeyboardInterrupt:
        stopped.remove()
    passes = Interrupting(model, stop=None)
    kept("again", class_moments(model, tokenizer, TEXTS, LABELS, work_dir=folder / "work", **options))
    told["passes again"] = passes.passes
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
