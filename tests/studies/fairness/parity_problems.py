"""Generated scores with groups that differ, and the program of parity written a second time, without a barycentre."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

DP, EO = "demographic-parity", "equal-opportunity"


class Scored(NamedTuple):
    """Probabilities (n, K) and one group per row."""

    scores: np.ndarray
    group: np.ndarray


def make_scored(seed, *, n=300, classes=4, groups=2):
    """Return scores of a noisy classifier whose classes are rarer in one group than in another."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=n)
    prior = np.exp(0.8 * rng.normal(size=(groups, classes))) / np.arange(1, classes + 1)
    prior /= prior.sum(axis=1, keepdims=True)
    y = np.array([rng.choice(classes, p=prior[a]) for a in group])
    logits = np.log(prior[group]) + 1.3 * rng.normal(size=(n, classes))
    logits[np.arange(n), y] += 3.0
    scores = np.exp(logits)
    return Scored(scores / scores.sum(axis=1, keepdims=True), group)


def rate_weights(data, criterion):
    """Return v (n, K): the rate of class y in group a is the sum over its rows of v_iy γ_iy."""
    v = np.ones_like(data.scores) if criterion == DP else data.scores.copy()
    for a in np.unique(data.group):
        mass = v[data.group == a].sum(axis=0)
        v[data.group == a] /= np.where(mass > 0, mass, 1.0)
    return v


def least_error(data, alpha, criterion):
    """Return the optimum over couplings whose rates differ by ``alpha`` at most, group by group."""
    n, K = data.scores.shape
    v = rate_weights(data, criterion)
    entries = np.arange(n * K)
    rates = {
        a: sparse.csr_array(((v * (data.group == a)[:, None]).ravel(), (entries % K, entries)), shape=(K, n * K))
        for a in np.unique(data.group)
    }
    pairs = []
    for a, b in combinations(rates, 2):
        both = (rates[a].sum(axis=1) > 0) & (rates[b].sum(axis=1) > 0)
        difference = (rates[a] - rates[b])[np.flatnonzero(both)]
        pairs += [difference, -difference]
    limits = sparse.vstack(pairs)
    found = linprog(
        (1.0 - data.scores).ravel(),
        A_ub=n * limits,
        b_ub=np.full(limits.shape[0], n * alpha),
        A_eq=sparse.kron(sparse.eye_array(n), np.ones((1, K))),
        b_eq=np.ones(n),
        method="highs",
    )
    assert found.status == 0
    return found.fun / n


def make_joint(seed, *, n=300, classes=4):
    """Return probabilities (n, 2, K) of group and class: the scores of `make_scored` and unsure groups."""
    data = make_scored(seed, n=n, classes=classes)
    rng = np.random.default_rng(seed + 1)
    odds = np.exp(2.0 * (2 * data.group - 1) + rng.normal(size=n))[:, None] * np.exp(rng.normal(size=classes))
    second = data.scores * odds / (1 + odds)
    return np.stack([data.scores - second, second], axis=1)


def joint_rates(joint, criterion):
    """Return v (2, n, K): the rate of class y in group a is the sum over all rows of v_aiy γ_iy."""
    v = joint if criterion == EO else np.broadcast_to(joint.sum(axis=2, keepdims=True), joint.shape)
    return np.moveaxis(v / v.sum(axis=0), 1, 0)


def least_blind_error(joint, alpha, criterion):
    """Return the optimum over couplings of rows without groups whose expected rates differ by ``alpha`` at most."""
    n, _, K = joint.shape
    v = joint_rates(joint, criterion)
    entries = np.arange(n * K)
    difference = sparse.csr_array(((v[0] - v[1]).ravel(), (entries % K, entries)), shape=(K, n * K))
    found = linprog(
        (1.0 - joint.sum(axis=1)).ravel(),
        A_ub=n * sparse.vstack([difference, -difference]),
        b_ub=np.full(2 * K, n * alpha),
        A_eq=sparse.kron(sparse.eye_array(n), np.ones((1, K))),
        b_eq=np.ones(n),
        method="highs",
    )
    assert found.status == 0
    return found.fun / n


def predicted_gaps(data, chosen, criterion):
    """Return (K,) the largest difference of two groups' rates when row i gets class ``chosen[i]``."""
    taken = rate_weights(data, criterion) * np.eye(data.scores.shape[1])[chosen]
    rates = np.array([taken[data.group == a].sum(axis=0) for a in np.unique(data.group)])
    return np.ptp(rates, axis=0)


def free_error(data):
    """Return the expected error of everybody's best class."""
    return np.mean(1.0 - data.scores.max(axis=1))
