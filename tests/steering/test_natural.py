"""`NaturalSteering`: its price, its optimality, its held-out slope, its file."""

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.errors import CertificateError, DataError, ParameterError, ShapeError, SurgeryError

D, N = 6, 40


def problem(seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(D, D))
    g = rng.normal(size=D)
    return rng, rs.Fisher(100, R @ R.T), signal * g + rng.normal(size=(N, D))


def slope(delta, g, F):
    return g @ delta / np.sqrt(0.5 * delta @ F @ delta)


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("with_shift", [None, np.arange(D) + 1.0])
def test_the_shift_costs_what_was_asked(damping, with_shift):
    _, fisher, G = problem()
    natural = rs.NaturalSteering(kl=0.07, damping=damping, with_shift=with_shift).fit(G, fisher=fisher)
    assert fisher.kl(natural) == pytest.approx(0.07)
    assert natural.certificate_.kl == 0.07


def test_without_damping_no_direction_has_a_steeper_slope():
    rng, fisher, G = problem()
    F, g = fisher.matrix, G.mean(axis=0)
    natural = rs.NaturalSteering(damping=0.0).fit(G, fisher=fisher)
    best = slope(natural.map_.shift, g, F)
    assert best == pytest.approx(-np.sqrt(2 * g @ np.linalg.solve(F, g)))
    assert best == pytest.approx(natural.certificate_.slope)
    rivals = [natural.map_.shift + 0.1 * rng.normal(size=D) for _ in range(50)] + [-g]
    assert all(best < slope(rival, g, F) for rival in rivals)
    damped = rs.NaturalSteering(damping=1.0).fit(G, fisher=fisher)
    assert best < slope(damped.map_.shift, g, F) < 0


def test_the_sum_gives_both_directions_the_same_price():
    _, fisher, G = problem()
    F = fisher.matrix
    plain = rs.NaturalSteering(kl=0.1).fit(G, fisher=fisher).map_.shift
    other = np.arange(D) + 1.0
    unit = [v / np.sqrt(0.5 * v @ F @ v) for v in (plain, other)]
    expected = sum(unit)
    expected *= np.sqrt(0.1 / (0.5 * expected @ F @ expected))
    for added in (other, 3 * other, rs.Translation(other)):
        both = rs.NaturalSteering(kl=0.1, with_shift=added).fit(G, fisher=fisher)
        np.testing.assert_allclose(both.map_.shift, expected, rtol=1e-10)
        assert both.certificate_.added_shift


def test_the_held_out_slope_of_noise_is_zero():
    held_out, fitted, errors = [], [], []
    for seed in range(60):
        _, fisher, G = problem(seed, signal=0.0)
        certificate = rs.NaturalSteering().fit(G, fisher=fisher).certificate_
        held_out.append(certificate.held_out_slope)
        fitted.append(certificate.slope)
        errors.append(certificate.held_out_error)
    scale = np.std(held_out) / np.sqrt(len(held_out))
    assert abs(np.mean(held_out)) < 4 * scale
    assert np.mean(fitted) < -4 * scale  # the fitted slope promises an effect that is not there
    assert 0.5 < np.mean(errors) / np.std(held_out) < 2


def test_the_held_out_slope_of_a_signal_is_that_of_new_prompts():
    _, fisher, G = problem(signal=2.0)
    certificate = rs.NaturalSteering(damping=0.0, folds=10).fit(G, fisher=fisher).certificate_
    assert certificate.slope < certificate.held_out_slope < 0
    assert certificate.predicted_effect == pytest.approx(certificate.held_out_slope * np.sqrt(0.1))


def test_prompts_stay_in_one_fold():
    _, fisher, G = problem(signal=0.0)
    copies, prompts = np.repeat(G, 5, axis=0), np.repeat(np.arange(N), 5)
    grouped = rs.NaturalSteering().fit(copies, fisher=fisher, groups=prompts)
    alone = rs.NaturalSteering().fit(G, fisher=fisher)
    assert grouped.certificate_.prompts == N
    assert grouped.certificate_.held_out_slope == pytest.approx(alone.certificate_.held_out_slope)
    ungrouped = rs.NaturalSteering().fit(copies, fisher=fisher)
    assert ungrouped.certificate_.held_out_slope < alone.certificate_.held_out_slope - 0.1


def test_the_random_state_draws_the_folds():
    _, fisher, G = problem()
    first, same, other = (rs.NaturalSteering(random_state=seed).fit(G, fisher=fisher) for seed in (0, 0, 1))
    assert first.certificate_ == same.certificate_
    assert first.certificate_.held_out_slope != other.certificate_.held_out_slope
    np.testing.assert_array_equal(first.map_.shift, other.map_.shift)


def test_directions_without_a_price_are_left_alone():
    F = np.diag([1.0, 1.0, 0.0])
    natural = rs.NaturalSteering(damping=0.0).fit(np.ones((4, 3)), fisher=rs.Fisher(1, F))
    assert natural.map_.shift[2] == 0


def test_a_natural_steering_travels_with_its_certificate(tmp_path):
    _, fisher, G = problem()
    natural = rs.NaturalSteering().fit(G, fisher=fisher).with_origin(site="final", model="tiny")
    path = tmp_path / "n.safetensors"
    rs.save(natural.steering_, path)
    again = rs.load(path)
    assert again.certificate == natural.certificate_ and again.origin.site == "final"
    again.verify()
    X = np.ones((3, D))
    np.testing.assert_array_equal(again(X), natural.transform(X))
    with pytest.raises(CertificateError, match="digest"):
        again.astype(np.float16).verify()
    with pytest.raises(SurgeryError, match="which rows do not show"):
        again.verify(X, ["a", "b", "a"])


def test_bad_input_is_refused():
    _, fisher, G = problem()
    fit = rs.NaturalSteering().fit
    with pytest.raises(DataError, match="at least two"):
        fit(G[:1], fisher=fisher)
    with pytest.raises(DataError, match="at least two"):
        fit(G, fisher=fisher, groups=np.zeros(N))
    with pytest.raises(ShapeError, match="one site"):
        fit(G[:, 1:], fisher=fisher)
    with pytest.raises(ParameterError, match=r"lm\.fisher"):
        fit(G, fisher=fisher.matrix)
    with pytest.raises(DataError, match="is zero"):
        fit(np.zeros((4, D)), fisher=fisher)
    with pytest.raises(ParameterError, match="damping is -1"):
        rs.NaturalSteering(damping=-1).fit(G, fisher=fisher)
    with pytest.raises(ParameterError, match="nats"):
        rs.NaturalSteering(kl=0).fit(G, fisher=fisher)
    with pytest.raises(ShapeError, match="with_shift"):
        rs.NaturalSteering(with_shift=np.ones(2)).fit(G, fisher=fisher)
