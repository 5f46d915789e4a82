import numpy as np
import pytest

import repsurgery as rs
from tests.certificates.test_outcome import FACTS, outcome

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(40, 3)), np.repeat(["a", "b"], 20)


def _values():
    est = rs.MiMiC(source="a", target="b").fit(X, Z)
    return {
        "estimator": est,
        "steering-function": est.steering_,
        "map": est.map_,
        "gate": est.gate_,
        "class-moments": est.moments_,
    }


@pytest.mark.parametrize("kind", list(_values()))
def test_every_kind_of_file_is_described(run, as_json, tmp_path, kind):
    path = tmp_path / "file"
    rs.save(_values()[kind], path)
    described = as_json(path)
    assert described["kind"] == kind
    shown = run("inspect", path)
    assert shown.exit_code == 0, shown.output
    assert f"file: {kind}" in shown.stdout
    assert ("Certificate" in shown.stdout) == (kind in ("estimator", "steering-function"))


def test_the_description_gives_shapes_classes_and_certificate(as_json, tmp_path):
    est = _values()["estimator"]
    rs.save(est, tmp_path / "file")
    described = as_json(tmp_path / "file")
    assert described["moments"]["classes"]["a"]["rows"] == 20
    assert described["steering"]["maps"]["a"]["arrays"]["matrix"] == [3, 3]
    assert described["steering"]["classes"] == ["a", "b"]
    assert rs.Certificate.from_dict(described["steering"]["certificate"]) == est.certificate_


def test_several_sources_have_a_column_each(run, tmp_path):
    z = np.repeat(["a", "b", "c", "d"], 10)
    rs.save(rs.MeanMatching(target="d").fit(X, z), tmp_path / "file")
    shown = run("inspect", tmp_path / "file").stdout
    assert all(f"{label} → d" in shown for label in "abc")


def test_a_damaged_file_is_one_line(run, tmp_path):
    path = tmp_path / "file"
    rs.save(_values()["map"], path)
    path.write_bytes(path.read_bytes()[:-9])
    result = run("inspect", path)
    assert result.exit_code == 1
    assert "truncated" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_empty_label_is_seen(run, tmp_path):
    rs.save(rs.MiMiC(source="a", target="").fit(X, np.repeat(["a", ""], 20)).steering_, tmp_path / "file")
    shown = run("inspect", tmp_path / "file").stdout
    assert "'', a" in shown and "a → ''" in shown


def test_a_natural_steering_shows_its_held_out_slope(run, tmp_path):
    G = np.random.default_rng(0).normal(size=(10, 3)) + 1
    natural = rs.NaturalSteering(kl=0.05).fit(G, fisher=rs.Fisher(9, np.eye(3)))
    rs.save(natural.steering_, tmp_path / "n")
    shown = run("inspect", tmp_path / "n").stdout
    assert "slope, held out" in shown and "predicted KL" in shown
    rs.save(rs.Fisher(9, np.eye(3)), tmp_path / "f")
    assert "fisher" in run("inspect", tmp_path / "f").stdout


def test_the_measured_effect_is_shown_in_words(run, as_json, tmp_path):
    function = _values()["steering-function"]
    rs.save(function.with_outcome(outcome()), tmp_path / "file")
    shown = run("inspect", tmp_path / "file")
    assert shown.exit_code == 0, shown.output
    assert outcome().words() in shown.stdout.splitlines()
    assert "Certificate" in shown.stdout
    assert as_json(tmp_path / "file")["outcome"] == FACTS
    rs.save(function, tmp_path / "bare")
    assert "took no part" not in run("inspect", tmp_path / "bare").stdout
    assert "outcome" not in as_json(tmp_path / "bare")


def test_a_judge_cannot_steer_the_terminal(run, tmp_path):
    rs.save(_values()["steering-function"].with_outcome(outcome(judge="\x1b[2J[red]me")), tmp_path / "file")
    shown = run("inspect", tmp_path / "file").stdout
    assert "\x1b" not in shown
    assert "judged by \\x1b[2J[red]me, AUC" in shown


def test_the_certificate_is_brought_to_the_strength_of_the_file(run, tmp_path):
    """The steering of the zoo is applied at another strength than 1, at which its certificate was issued."""
    steering = rs.load("non-toxic")
    strength = steering.origin.strength
    shown = " ".join(run("inspect", "non-toxic").stdout.split())
    assert f"describes the map at strength 1; this file applies it at strength {strength:.3g}." in shown
    rs.save(steering.with_origin(strength=1.0), tmp_path / "full.safetensors")
    assert "The certificate describes" not in run("inspect", tmp_path / "full.safetensors").stdout


def test_the_measured_price_comes_first_and_the_predicted_one_where_there_is_one(run, as_json, tmp_path):
    listed = " ".join(run("zoo").stdout.split())
    for name in rs.zoo.names():
        steering = rs.load(name)
        strength, measured = steering.origin.strength, steering.outcome.kl
        # mean matching has a certificate of gaps
        kl = getattr(steering.certificate, "kl", None)
        said = "the file stores nothing that predicts it" if kl is None else f"predicted {kl * strength**2:.3g}"
        sentence = f"Price at strength {strength:.3g}: measured {measured:.3g} nats per token, {said}."
        assert sentence in " ".join(run("inspect", name).stdout.split()) and sentence in listed
        prices = {"strength": strength, "measured_kl": measured, "predicted_kl": kl and kl * strength**2}
        assert as_json(name)["prices"] == prices
    # a price of a file that nothing was measured of, by its certificate and by its Fisher matrix
    shift = rs.SteeringFunction({None: rs.Translation([1.0, 0.0, 0.0])}).with_origin(site="final", strength=0.5)
    rs.save(shift.with_price(rs.price.Price(rs.Fisher(9, np.eye(3)), site="final")), tmp_path / "f")
    assert "Price at strength 0.5: predicted 0.125 nats per token." in run("inspect", tmp_path / "f").stdout
    rs.save(shift, tmp_path / "bare")
    assert "Price at" not in run("inspect", tmp_path / "bare").stdout
