"""Every kind of object that shows itself, plain and with the widest and strangest contents."""

import numpy as np

import repsurgery as rs
from repsurgery.gates import AlwaysGate, ClassifierGate, LabelsGate
from repsurgery.price import Price
from repsurgery.tuning.tune import Tuned
from tests.estimators import ALL
from tests.strategies import make_concept
from tests.studies.tuned_record import RECORD

ATTACK = "\x1b[31mred\x1b[0m\n\u202e<script>alert('&')</script>\t"
LONG = "x" * 10_000
OUTCOME = rs.Outcome(
    **{"judge": LONG, "judge_digest": "", "auc": 0.97, "source": ATTACK, "target": LONG, "measure": "share"},
    **{"base": 0.63, "steered": 0.24, "effect": -0.39, "low": -0.45, "high": -0.33, "p": 0.0002, "kl": 0.098},
    **{"wikitext_ratio": 1.04, "prompts": 60, "samples": 5, "tokens": 25},
)


def concept(labels=("a", "b"), d=6, rows=60):
    """Rows of as many classes as there are labels, and the label of each row."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(rows, d)) @ rng.normal(size=(d, d)) + i for i in range(len(labels))])
    return X, np.repeat(np.array(labels, dtype=object), rows)


def many_classes(k=1000, d=3):
    rng = np.random.default_rng(0)
    return rs.ClassMoments.of(rng.normal(size=(2 * k, d)), np.repeat([f"class {i:04}" for i in range(k)], 2))


def fisher(d=6):
    return rs.Fisher(100, np.eye(d), 8)


def tuned(label="rude", record=RECORD):
    """What `tune` returns, from a record as it is written."""
    function = rs.SteeringFunction({None: rs.Translation(np.ones(4))}).with_outcome(OUTCOME)
    candidate = {"site": "final", "method": "mean", "fit": "texts", "shrinkage": "none", "scope": "all"}
    lock = {"candidate": candidate, "source": label, "target": LONG, "model": LONG, "strength": 1.7, "kl": 0.1}
    return Tuned(function, record, lock)


def maps():
    rng, d = np.random.default_rng(0), 4096
    W = np.eye(d) + rng.normal(size=(d, 1)) / 64
    yield "identity", rs.Identity(d)
    yield "translation", rs.Translation(rng.normal(size=d))
    yield "diagonal", rs.Diagonal(rng.normal(size=d), rng.normal(size=d))
    yield "low rank", rs.LowRank(rng.normal(size=(d, 3)), rng.normal(size=(3, d)), rng.normal(size=d))
    yield "dense", rs.Dense(W, rng.normal(size=d))


def gates(labels):
    X, z = concept(labels)
    for name in ("always", "nearest-mean", "lda", "qda", "logistic", "labels"):
        yield name, rs.build_gate(name, X, z)
    yield "mlp", rs.build_gate("mlp", X[:, :2], z, random_state=0)
    linear = rs.build_gate("nearest-mean", X, z)
    if len(labels) == 2:
        yield "soft", rs.calibrate_soft_gate(linear, X, source=labels[0])
    yield "classifier", ClassifierGate(tuple(labels), linear)
    yield "empty", AlwaysGate()
    yield "labels of nothing", LabelsGate()


def fitted(labels):
    X, z = concept(labels)
    for method in ALL:
        yield method.__name__, method().fit(X, z)


def objects():
    """Yield names and objects of every kind; some labels attack the terminal or the page, or are very long."""
    yield from maps()
    for labels in (("a", "b"), (ATTACK, LONG), (0, 1), tuple(f"{LONG}{i}" for i in range(8))):
        for name, gate in gates(labels):
            yield f"gate {name} {labels[0]!r:.9}", gate
        for name, estimator in fitted(labels):
            named = f"{name} {labels[0]!r:.9} {len(labels)}"
            X, z = concept(labels)
            placed = estimator.with_origin(model=LONG, site=ATTACK, strength=0.5, licence=LONG)
            yield named, placed
            yield f"unfitted {named}", type(estimator)(**estimator.get_params())
            yield f"function {named}", placed.steering_.with_outcome(OUTCOME)
            yield f"certificate {named}", estimator.certificate_
            yield f"record {named}", next(iter(estimator.certificate_.by_source.values()))
            checked = estimator.verify(X, z).verification_
            yield f"verification {named}", checked
            yield f"finding {named}", checked.findings[0]
        yield f"measured {labels[0]!r:.9}", rs.MiMiC().fit(*concept(labels)).certify(*concept(labels))
    for label in (ATTACK, LONG):
        yield "named", rs.MiMiC(source=label, target=[label] * 99, gate=rs.build_gate("lda", *concept()))
    X, z = make_concept(0, d=5, rows=(40, 40))
    thousand = many_classes()
    yield "moments", rs.Moments.of(X, groups=np.arange(len(X)) // 4, sample_weight=np.full(len(X), 2.0))
    yield "wide moments", rs.Moments.of(np.random.default_rng(0).normal(size=(40, 4096)))
    yield "no rows", rs.Moments.empty(3)
    yield "no classes", rs.ClassMoments()
    yield "groups", rs.Moments.of(X, groups=np.arange(len(X)) // 4).groups
    yield "thousand classes", thousand
    yield "thousand classes, erased", rs.LEACE.from_moments(thousand)
    yield "thousand sources", rs.MeanMatching.from_moments(thousand)
    yield "their certificate", rs.MeanMatching.from_moments(thousand).certificate_
    yield "their function", rs.MeanMatching.from_moments(thousand).steering_
    yield "partial", rs.LEACE().partial_fit(X[:3], z[:3])
    for k in (1, 200):
        Z = np.random.default_rng(0).normal(size=(80, k))
        rated = rs.LEACE(concept_type="continuous", shrinkage="oas").fit(X, Z)
        yield f"continuous {k}", rated
        yield f"continuous certificate {k}", rated.certificate_
        yield f"measured continuous {k}", rated.certify(X, Z)
        yield f"cross moments {k}", rated.moments_
        yield f"continuous verification {k}", rated.verify(X, Z).verification_
    yield "fisher", fisher()
    yield "price", Price(fisher(), None, None, ATTACK)
    yield "price of many", Price(fisher(3), thousand, dict.fromkeys([*thousand, ATTACK, LONG], 0.25), LONG)
    natural = rs.NaturalSteering(with_shift=np.ones(6)).fit(np.ones((5, 6)) + np.eye(5, 6), fisher=fisher())
    yield "natural", natural
    yield "unfitted natural", rs.NaturalSteering(with_shift=np.ones(4096))
    yield "effect", natural.certificate_
    yield "outcome", OUTCOME
    yield "verified bytes", natural.steering_.verify()
    yield "tuned", tuned(ATTACK)
    yield "tuned again", tuned(LONG, None)
