"""A bidirectional LSTM with a maximum over time and two dense layers, as Keras computes it, in numpy.

Every text is a row of exactly ``length`` word numbers, padded with zeros at its start. The network reads the zeros like
words, because Keras applies no mask here. The forward direction reads the same zeros before every text, so this is done
once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["Direction", "RecurrentNetwork"]

Array: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class State:
    """The state of one direction: output ``h``, cell ``c``, and the largest output so far, each (n, u)."""

    h: Array
    c: Array
    peak: Array


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction: kernel (d, 4u), recurrent kernel (u, 4u), bias (4u,); their gates in the order i, f, g, o."""

    kernel: Array
    recurrent: Array
    bias: Array

    def start(self) -> State:
        """Return the state (1, u) before anything is read."""
        zero = np.zeros((1, len(self.recurrent)), dtype=np.float32)
        return State(zero, zero, np.full_like(zero, -np.inf))

    def project(self, embedding: Array) -> Array:
        """Return what each word (v, d) adds to the gates, (v, 4u)."""
        return embedding @ self.kernel + self.bias

    def read(self, state: State, projected: Array) -> State:
        """Return the state after one more word of each text, whose projection is (n, 4u)."""
        gates = projected + state.h @ self.recurrent
        u = len(self.recurrent)
        g = np.tanh(gates[:, 2 * u : 3 * u])
        i, f, o = (expit(gates[:, k * u : (k + 1) * u]) for k in (0, 1, 3))
        c = f * state.c + i * g
        h = o * np.tanh(c)
        return State(h, c, np.maximum(state.peak, h))


@dataclass(frozen=True, slots=True)
class RecurrentNetwork:
    """Word numbers to one number in [0, 1] per class.

    Attributes
    ----------
    embedding : (v, d)
        Row 0 belongs to the padding.
    forward, backward : Direction
    hidden, output : pair of (m, k) and (k,)
        Kernel and bias of the two dense layers; ReLU after the first, the logistic function after the second.
    length : int
        The number of words that the network reads; of longer texts it reads the end.
    """

    embedding: Array
    forward: Direction
    backward: Direction
    hidden: tuple[Array, Array]
    output: tuple[Array, Array]
    length: int
    _forward_words: Array = field(init=False, repr=False)
    _backward_words: Array = field(init=False, repr=False)
    _padded: tuple[State, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_forward_words", self.forward.project(self.embedding))
        object.__setattr__(self, "_backward_words", self.backward.project(self.embedding))
        states = [self.forward.start()]
        for _ in range(self.length):
            states.append(self.forward.read(states[-1], self._forward_words[:1]))
        object.__setattr__(self, "_padded", tuple(states))

    def __call__(self, rows: Sequence[Sequence[int]], *, batch_size: int = 128) -> Array:
        """Return (n, classes) for the word numbers of ``n`` texts."""
        cut = [list(row[-self.length :]) for row in rows]
        scores = np.empty((len(cut), len(self.output[1])), dtype=np.float32)
        order = sorted(range(len(cut)), key=lambda i: len(cut[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            scores[batch] = self._classify([cut[i] for i in batch])
        return scores

    def _classify(self, rows: list[list[int]]) -> Array:
        width = max(map(len, rows))
        words = np.zeros((len(rows), width), dtype=np.intp)
        for i, row in enumerate(rows):
            words[i, width - len(row) :] = row
        ahead = self._padded[self.length - width]
        for t in range(width):
            ahead = self.forward.read(ahead, self._forward_words[words[:, t]])
        back = self.backward.start()
        for t in reversed(range(width)):
            back = self.backward.read(back, self._backward_words[words[:, t]])
        for _ in range(self.length - width):
            back = self.backward.read(back, self._backward_words[:1])
        return self._head(np.hstack([np.broadcast_to(s.peak, (len(rows), s.peak.shape[1])) for s in (ahead, back)]))

    def _head(self, peaks: Array) -> Array:
        hidden = np.maximum(peaks @ self.hidden[0] + self.hidden[1], 0)
        scores: Array = expit(hidden @ self.output[0] + self.output[1])
        return scores
