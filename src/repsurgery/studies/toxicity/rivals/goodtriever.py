"""GOODTRIEVER: raise what follows similar contexts in clean texts, not in toxic ones (Pozzobon et al., 2023)."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import torch

from repsurgery.errors import ParameterError
from repsurgery.lm.batching.batches import entry_device
from repsurgery.lm.batching.tokens import context_length
from repsurgery.lm.sites.names import last_mlp_input
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.datastore import SEARCHES, Datastore, Tap, collect, make_store, tapped
from repsurgery.studies.toxicity.decoding.parts import Made, Part, Workshop
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.decoding.sampler import Decoder, nucleus
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorContext

__all__ = ["Goodtriever", "Retrieval", "neighbours_of"]

MOST, FEWEST, SHARE = 1024, 64, 100
"""The default k is a hundredth of the smaller store, within these bounds; 1024 is the authors' number."""
RATIO = 10.0
"""The default temperature is the median squared distance of a k-th neighbour, divided by this.

The authors' temperature of 100 belongs to the keys of GPT-2 large, whose distances are not published: SmolLM2's lie
about 25 apart, so 100 would weigh all neighbours equally. At this ratio, SmolLM2's weights are as spread out as those
of k / 2 equal neighbours: neither one neighbour nor plain counting decides."""
QUERIES = 256
"""Keys of each store whose k-th neighbours are measured for the default temperature."""


def neighbours_of(size: int) -> int:
    """Return the default k for stores of ``size`` keys."""
    return min(size, MOST, max(FEWEST, size // SHARE))


class Retrieval:
    """Two stores with their common k and temperature.

    Parameters
    ----------
    wanted, unwanted : pair of Datastore and its keys (m, d)
    k : int
        The number of neighbours; 0 for `neighbours_of` the smaller store.
    temperature : float
        Of the neighbours' weights; 0 for the median squared distance of a key's k-th neighbour in its own store,
        divided by `RATIO`.
    """

    def __init__(
        self,
        wanted: tuple[Datastore, torch.Tensor],
        unwanted: tuple[Datastore, torch.Tensor],
        *,
        k: int = 0,
        temperature: float = 0.0,
    ) -> None:
        self.wanted, self.unwanted = wanted[0], unwanted[0]
        self.k = k or neighbours_of(min(len(keys) for _, keys in (wanted, unwanted)))
        self.temperature = temperature or self._scaled([wanted, unwanted])

    def difference(self, queries: torch.Tensor, vocabulary: int) -> torch.Tensor:
        """Return log P_wanted - log P_unwanted (n, vocabulary) after states (n, d)."""
        wanted, unwanted = (
            store.log_probabilities(queries, k=self.k, temperature=self.temperature, vocabulary=vocabulary)
            for store in (self.wanted, self.unwanted)
        )
        return wanted - unwanted

    def _scaled(self, stores: list[tuple[Datastore, torch.Tensor]]) -> float:
        furthest = []
        for store, keys in stores:
            queries = keys[:: -(-len(keys) // QUERIES)]
            # a key is its own nearest neighbour
            distances, index = store.search(queries, min(self.k + 1, len(keys)))
            furthest.append(distances.masked_fill(index < 0, 0.0).amax(dim=-1))
        median = torch.cat(furthest).median().item()
        return median / RATIO if median > 0 else 1.0


@GENERATORS.register("goodtriever")
class Goodtriever(Rival):
    """Draw from softmax(base + alpha (log P_target - log P_source)) within the nucleus of the base.

    P_target and P_source are next-token distributions from two stores, of texts of the target and of the source. A
    store holds, for each of its first ``tokens`` tokens, the input of the last MLP at the position before it. The k
    keys nearest to the present input, by squared distance d, give their tokens the weights softmax(-d / temperature);
    a token that none of them has gets the smallest log-probability of the row. The authors take that floor over the
    whole batch, so that a text depends on its neighbours in the batch, and apply a second nucleus after the sum; here
    the floor is each row's own, and every token of the base's nucleus may be drawn.

    Guarantees
    ----------
    With ``alpha=0`` it writes what the base writes, in every family (test_strength_zero_is_the_base).
    The keys are the normed inputs of the last MLP
    (test_keys_are_the_normed_inputs_of_the_last_mlp_and_values_the_next_tokens).
    """

    options: ClassVar = {"alpha": 2.0, "tokens": 20_000, "k": 0, "temperature": 0.0, "index": "exact"}
    needs: ClassVar[str] = "labelled texts; two stores of states"

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        super().__init__(name, context, **options)
        alpha, k, temperature, index = (options[option] for option in ("alpha", "k", "temperature", "index"))
        if not (math.isfinite(alpha) and k >= 0 and 0 <= temperature < math.inf and index in SEARCHES):
            raise ParameterError(
                f"{name!r} has alpha={alpha}, k={k}, temperature={temperature} and index={index}; alpha must be "
                f"finite, k and temperature must be 0 or more, and index one of {', '.join(SEARCHES)}."
            )

    @property
    def top_p(self) -> float:
        """1: the decoder removes what is not in the nucleus of the base."""
        return 1.0

    def parts(self) -> Mapping[str, Part]:
        """Return the two stores."""
        spec = self.context.spec
        return {"target": self._store(spec.target), "source": self._store(spec.source)}

    def _store(self, label: str) -> Part:
        def make(workshop: Workshop) -> Made:
            return collect(
                self.model,
                self.tokenizer,
                self.context.texts.fitted[label],
                tokens=self.chosen["tokens"],
                max_length=min(self.context.spec.max_length, context_length(self.model, self.tokenizer)),
                workshop=workshop,
                label=f"the store of {label} tokens",
            )

        return Part(f"store of {label} tokens", make, {"tokens": self.chosen["tokens"]})

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Keep the input of the last MLP of each pass."""
        with tapped(last_mlp_input(self.model)) as self._tap:
            yield

    def decoder(self) -> Decoder:
        """Return the ensemble of the model and its stores."""
        return _Ensemble(self, self._tap)

    @cached_property
    def retrieval(self) -> Retrieval:
        """The two stores in memory."""
        device = entry_device(self.model)
        stores = (make_store(self.part(name), index=self.chosen["index"], device=device) for name in self.parts())
        return Retrieval(*stores, k=self.chosen["k"], temperature=self.chosen["temperature"])

    _tap: Tap


class _Ensemble:
    def __init__(self, rival: Goodtriever, tap: Tap) -> None:
        self.rival, self.tap = rival, tap
        self.base = CachedModel(rival.model)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self._combined(self.base.read(ids, mask))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._combined(self.base.step(tokens))

    def _combined(self, logits: torch.Tensor) -> torch.Tensor:
        spec = self.rival.context.spec
        rows = self.base.rows
        queries = self.tap.keys(int(rows.max()) + 1)[:, -1].to(logits.device)
        difference = self.rival.retrieval.difference(queries, logits.shape[1])[rows]
        kept = nucleus(logits, spec.top_p, float(spec.temperature))
        alpha: float = self.rival.chosen["alpha"]
        return (logits + alpha * difference).masked_fill(~kept, -torch.inf)
