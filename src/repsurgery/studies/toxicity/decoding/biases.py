"""`BiasTuned`: a decoder that tunes bias vectors of the upper blocks for one gradient step before each token."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from repsurgery.errors import ParameterError, SiteError
from repsurgery.lm.sites.names import Site, is_conv1d, resolve_site
from repsurgery.lm.steer.hooks import Visit, attach
from repsurgery.studies.toxicity.decoding.lookahead import Lookahead, Passed, fused
from repsurgery.studies.toxicity.decoding.module_hooks import blocks_of

__all__ = ["BiasTuned", "Biases", "biased_sites"]

EPSILON = 1e-8
"""The constant of Adam, which keeps a bias without gradient at zero."""


def biased_sites(model: nn.Module, layers: int) -> list[Site]:
    """Return the linear layers of the last ``layers`` blocks, and the final norm."""
    blocks = blocks_of(model)
    if not 1 <= layers <= len(blocks):
        raise ParameterError(
            f"layers is {layers}; this model has {len(blocks)} blocks, so it must lie in 1 to {len(blocks)}."
        )
    sites = [resolve_site(model, "final")]
    for block in blocks[-layers:]:
        inner = [path for path, m in block.module.named_modules() if isinstance(m, nn.Linear) or is_conv1d(m)]
        if not inner:
            raise SiteError(
                f"{block.path} of {type(model).__name__} has no linear layer whose bias could be tuned. Use a model "
                "whose blocks consist of torch.nn.Linear or transformers' Conv1D."
            )
        sites += [resolve_site(model, f"{block.path}.{path}") for path in inner]
    return sites


class Biases:
    """Vectors, one per row of the batch, that are added to the outputs of modules.

    Attributes
    ----------
    values : mapping of path to tensor
        Of the shape of the module's output for one token of each row.
    """

    def __init__(self, sites: list[Site]) -> None:
        self._sites = sites
        self.values: dict[str, torch.Tensor] = {}

    @contextmanager
    def added(self) -> Iterator[None]:
        """Add the vectors while the block runs. Where there is none yet, a zero vector with a gradient is added."""
        with ExitStack() as stack:
            for site in self._sites:
                stack.callback(attach(site, self._visitor(site)).remove)
            yield

    def _visitor(self, site: Site) -> Visit:
        def visit(state: torch.Tensor) -> torch.Tensor:
            if site.path not in self.values:
                self.values[site.path] = torch.zeros_like(state, requires_grad=True)
            return state + self.values[site.path]

        return visit


class BiasTuned:
    """Before each token, take one step of Adam on bias vectors towards a target that the head predicts more surely.

    In the first pass of the last token the vectors are zero, so it is the pass of the unchanged model too. Adam's first
    step is -lr g / (|g| + ε): each number of each vector moves by lr against the sign of its gradient. The second pass
    has the tuned vectors; its keys and values are dropped. A row's vectors depend on that row alone.
    The soft token is passed without vectors.

    Parameters
    ----------
    ahead : Lookahead
    sites : list of Site
        See `biased_sites`.
    lr, fusion : float
        The size of the step, and the exponent of the tuned distribution in p^fusion u^(1 - fusion).

    Attributes
    ----------
    clean : (n, vocabulary) tensor
        The logits of the unchanged model for the token that is drawn next.
    """

    def __init__(self, ahead: Lookahead, sites: list[Site], *, lr: float, fusion: float) -> None:
        self._ahead, self._sites, self._lr, self._fusion = ahead, sites, lr, fusion
        self.clean = torch.empty(0)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after prompts (n, length), which are padded on the left."""
        return self.step(self._ahead.start(ids, mask))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, vocabulary) after one more token (n,) of each row."""
        clean, biases = self.tuned(tokens)
        with biases.added():
            changed = self._ahead.last(tokens, self._ahead.past)
        self._ahead.accept(clean)
        self.clean = clean.logits
        return fused(changed.logits, clean.logits, self._fusion)

    def tuned(self, tokens: torch.Tensor) -> tuple[Passed, Biases]:
        """Return what the last token (n,) gives in the unchanged model, and the tuned biases for it."""
        biases = Biases(self._sites)
        with torch.enable_grad():
            with biases.added():
                seen = self._ahead.last(tokens, self._ahead.past)
            clean = seen.detached()
            loss = -self._ahead.log_p(seen, clean.past).sum()
            vectors = list(biases.values.values())
            gradients = torch.autograd.grad(loss, vectors, allow_unused=True, materialize_grads=True)
        steps = (-self._lr * g / (g.abs() + EPSILON) for g in gradients)
        biases.values = dict(zip(biases.values, steps, strict=True))
        return clean, biases
