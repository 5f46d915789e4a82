"""Rows in groups: `verify` holds its level where ignoring the groups raises false alarms, and says both numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

import repsurgery as rs
from repsurgery.certificates.certificate import Certificate
from repsurgery.certificates.group_rows import scores_by_group, squares_by_group
from repsurgery.certificates.verify import LEVEL, verdict_of
from repsurgery.errors import CertificateError, DataError, LabelError
from repsurgery.studies.common.report.certificates import certificate_table
from tests.certificates.test_verify import UNEXPECTED
from tests.strategies import make_concept

KINDS = ("20 rows per text", "1 to 39 rows per text", "correlated along the concept alone")


def draw(rng, kind, texts=80, size=20, d=6):
    """Return rows of texts, two classes of them, with an intraclass correlation of 0.5, and the text of each row."""
    sizes = rng.integers(1, 2 * size, texts) if kind == KINDS[1] else np.full(texts, size)
    g = np.repeat(np.arange(texts), sizes)
    z = (g >= texts // 2).astype(int)
    correlation = np.where(np.arange(d) == 0, 0.9, 0.0) if kind == KINDS[2] else np.full(d, 0.5)
    X = np.sqrt(correlation) * rng.normal(size=(texts, d))[g] + np.sqrt(1 - correlation) * rng.normal(size=(len(g), d))
    X *= np.where(z == 0, 1.5, 1.0)[:, None]
    X[:, 0] += 1.5 * z
    return X, z, g


@pytest.mark.parametrize("kind", KINDS)
def test_groups_hold_the_level_where_rows_alone_raise_false_alarms(kind):
    repeats, methods = 12, (rs.MeanMatching, rs.MiMiC, rs.LEACE)
    alarms, ignored = 0, 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        (X, z, g), (Y, y, h) = draw(rng, kind), draw(rng, kind)
        for method in methods:
            steering = method().fit(X, z, groups=g).steering_
            verdict = verdict_of(lambda s=steering, Y=Y, y=y, h=h: s.verify(Y, y, groups=h))
            alarms += verdict == "contradicted"
        steering = rs.MeanMatching().fit(X, z).steering_
        ignored += verdict_of(lambda s=steering, Y=Y, y=y: s.verify(Y, y)) == "contradicted"
    assert alarms <= binom.isf(UNEXPECTED, repeats * len(methods), LEVEL)
    assert ignored > binom.isf(UNEXPECTED, repeats, LEVEL)
    assert ignored >= repeats / 3


def test_a_map_that_leaves_half_of_the_gap_is_noticed_in_groups_too():
    rng = np.random.default_rng(0)
    (X, z, g), (Y, y, h) = (draw(rng, KINDS[0], texts=6000, size=4) for _ in range(2))
    est = rs.MeanMatching().fit(X, z, groups=g)
    assert est.steering_.verify(Y, y, groups=h).verdict == "supported"
    weaker = rs.interpolate(est.steering_, 0.5)
    weaker = rs.SteeringFunction(weaker.maps, weaker.gate, weaker.classes).sealed(est.certificate_)
    with pytest.raises(CertificateError, match="equal means"):
        weaker.verify(Y, y, groups=h)


@pytest.mark.parametrize("method", [rs.MeanMatching, rs.MiMiC, rs.DiagonalTransport, rs.LEACE])
@pytest.mark.parametrize("rows", [(60, 80), (1200, 1100)])
def test_groups_of_one_row_change_no_verdict(method, rows):
    X, z = make_concept(0, d=5, rows=rows)
    Y, y = make_concept(0, d=5, rows=rows)
    alone = np.arange(len(Y))
    est, plain = method().fit(X, z, groups=alone), method().fit(X, z)
    assert est.certificate_ == plain.certificate_
    assert est.steering_.verify(Y, y, groups=alone) == plain.steering_.verify(Y, y)


def test_equal_rows_in_groups_are_worth_one_row_each():
    """Every row five times, as one group: the verdict on means is that of the rows once."""
    X, z = make_concept(0, d=5, rows=(300, 300))
    Y, y = make_concept(0, d=5, rows=(300, 300))
    est = rs.MeanMatching().fit(X, z)
    once = est.steering_.verify(Y, y).findings[0]
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(600), 5))
    often = est.steering_.verify(Y[order], y[order], groups=order).findings[0]
    assert (often.rows, often.effective) == ((1500, 1500), pytest.approx((300, 300)))
    for name in ("found", "allowed", "p_value", "power"):
        assert getattr(often, name) == pytest.approx(getattr(once, name), rel=1e-6)
    ignored = est.steering_.verify(Y[order], y[order]).findings[0]
    assert ignored.allowed < 0.95 * once.allowed


def test_certificates_say_rows_and_effective_rows(tmp_path):
    rng = np.random.default_rng(0)
    (X, z, g), (Y, y, h) = draw(rng, KINDS[0]), draw(rng, KINDS[0])
    est = rs.MiMiC().fit(X, z, groups=g)
    record = est.certificate_.by_source[0]
    assert (record.rows_source, record.rows_target) == (800, 800)
    assert record.effective_source == pytest.approx(est.moments_[0].effective_count)
    assert 40 < record.effective_source < 160  # 800 / (1 + 19 · 0.5) = 76
    table = dict(row[:2] for row in certificate_table(est.certificate_).rows)
    source, target = (f"800 ({n:.0f})" for n in record.effective_rows)
    assert table["rows (effective)"] == f"{source} / {target}"
    again = est.certify(Y, y, groups=h).by_source[0]
    assert again.effective_source == pytest.approx(rs.Moments.of(Y[y == 0], groups=h[y == 0]).effective_count)
    assert est.certify(Y, y).by_source[0].effective_source == 800
    rs.save(est, tmp_path / "e")
    assert rs.load(tmp_path / "e").certificate_ == est.certificate_
    finding = est.verify(Y, y, groups=h).verification_.findings[0]
    assert finding.rows == (800, 800)
    assert finding.effective == again.effective_rows


def test_weights_do_not_change_the_number_of_rows_in_a_certificate():
    X, z = make_concept(0, d=4, rows=(60, 70))
    for weight in (0.01, 3.0):
        record = rs.MeanMatching().fit(X, z, sample_weight=np.full(130, weight)).certificate_.by_source[0]
        assert record.effective_rows == (60, 70)


def test_older_certificates_without_effective_rows_are_read():
    certificate = rs.MiMiC().fit(*make_concept(0)).certificate_
    plain = certificate.to_dict()
    for record in plain["by_source"]:
        del record["effective_source"], record["effective_target"]
    old = Certificate.from_dict(plain)
    assert old.by_source[0].effective_source is None
    assert old.by_source[0].effective_rows == (60, 90)
    assert dict(row[:2] for row in certificate_table(old).rows)["rows (effective)"] == "60 / 90"
    plain["by_source"][0]["effective_source"] = float("nan")
    with pytest.raises(DataError, match="effective_source is"):
        Certificate.from_dict(plain)


def test_few_groups_are_refused_however_many_rows_they_hold():
    X, z, g = draw(np.random.default_rng(0), KINDS[0])
    est = rs.MeanMatching().fit(X, z, groups=g)
    few = np.isin(g, [0, 1, 2, 3, 60, 61, 62, 63, 64])
    assert few.sum() == 180
    with pytest.raises(DataError, match="4 groups of rows of 0 and 5 of 1"):
        est.verify(X[few], z[few], groups=g[few])
    with pytest.raises(LabelError, match="verify got groups of shape"):
        est.verify(X, z, groups=g[1:])


def test_scores_and_squares_of_groups_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(60, 4)), rng.integers(0, 9, 60)
    X -= X.mean(axis=0)
    scores, S = X[:, 0] + 3, X.T @ X / 60
    found = scores_by_group(scores, codes)
    wanted = [3 + 9 / 60 * (scores[codes == g] - 3).sum() for g in range(9)]
    assert_allclose(found, wanted, atol=1e-12)
    assert_allclose(found.mean(), scores.mean())
    norm = float(np.square(S).sum())
    outer = [np.square(X[codes == g].T @ X[codes == g]).sum() - (codes == g).sum() ** 2 * norm for g in range(9)]
    assert_allclose(squares_by_group(X, codes, norm), np.maximum(outer, 0) * (9 / 60) ** 2)
