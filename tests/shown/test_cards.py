"""Objects show themselves on one screen, in words, and no label acts on a terminal or a page."""

import unicodedata
import warnings
from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import repsurgery as rs
from repsurgery.cards import Card, listed, shortened
from repsurgery.gates import Gate, LinearGate
from tests.estimators import ALL
from tests.shown.objects import LONG, concept, many_classes, objects, tuned

pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.SurgeryWarning")


@pytest.fixture(scope="module")
def every():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(objects())


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)


def test_every_object_shows_itself_on_one_screen(every):
    assert len(every) > 150
    for name, value in every:
        text = repr(value)
        assert len(text) <= 2000, f"{name}: {len(text)} characters"
        assert len(text.splitlines()) <= 30, name
        assert max(map(len, text.splitlines())) <= 100, name
        assert "array(" not in text, name


def test_no_label_acts_on_the_terminal_or_the_page(every):
    for name, value in every:
        bad = {c for c in repr(value) if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n"}
        assert not bad, (name, bad)
        page = value._repr_html_()
        assert "<script>alert" not in page, name
        assert "\x1b" not in page, name
        assert "\u202e" not in page, name


def test_the_cards_of_values_hold_the_tags_of_a_table_alone(every):
    for name, value in every:
        if not isinstance(value, sklearn.base.BaseEstimator):
            parser = Tags()
            parser.feed(value._repr_html_())
            assert set(parser.tags) <= {"div", "strong", "table", "tr", "th", "td", "br"}, name


@dataclass(frozen=True, slots=True, eq=False)
class Wide(Gate):
    """A gate as a plugin defines it."""

    classes: tuple
    coef: np.ndarray
    kind = "wide-of-a-test"

    def codes(self, X):
        return np.zeros(len(X), dtype=np.intp)


def test_a_dataclass_of_a_plugin_shows_its_card_too():
    assert repr(Wide(("a", "b"), np.ones((2, 3)))) == (
        "Wide-of-a-test gate of 2 classes\n  classes  'a', 'b'\n  arrays   coef (2, 3)"
    )


def test_a_certificate_gives_its_verdict_in_words_first():
    X, z = concept(("toxic", "neutral"))
    mimic = rs.MiMiC(source="toxic", target="neutral").fit(X, z).certificate_
    first, said = repr(mimic).split("\n", 1)
    assert first == "Certificate of MiMiC"
    assert said.replace("\n", " ").startswith(
        "On the rows of the fit, the rows labelled 'toxic' have the mean and covariance of 'neutral' once they "
        "are steered.  "
    )
    erased = repr(rs.LEACE().fit(X, z).certificate_)
    assert "both classes have the same mean" in erased
    shrunk = repr(rs.MiMiC(source="toxic", target="neutral", shrinkage="oas").fit(X, z).certificate_)
    left = "have the mean of 'neutral' once they are steered. Gaps are left between the covariances ("
    assert left in shrunk.replace("\n", " ")


def test_a_probe_of_fewer_rows_than_features_is_not_shown_as_evidence():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(24, 40)), np.arange(24) % 2
    shown = repr(rs.LEACE(shrinkage="oas").fit(*concept(d=40, rows=400)).certify(X, np.where(z, "a", "b")))
    assert "fewer rows than features" in shown and "logistic probe" not in shown
    assert "gate decides" not in shown
    many = repr(rs.LEACE().fit(*concept(rows=400)).certify(*concept(rows=400)))
    assert "fewer rows than features" not in many and "logistic probe" in many


def test_a_verdict_says_what_the_gate_leaves():
    X, z = concept(("toxic", "neutral"))
    gated = rs.MeanMatching(source="toxic", target="neutral").fit(X, z)
    assert "Without labels the gate decides which rows are steered" in repr(gated).replace("\n", " ")
    certificate = gated.certify(X, z)
    left = f"Where the gate decides instead of labels, the gap between the means is {certificate.gated_mean_gap:.3g}"
    assert left in repr(certificate).replace("\n", " ")
    always = rs.MeanMatching(source="toxic", target="neutral", gate="always").fit(X, z)
    assert "gate decides" not in repr(always)


def test_a_verdict_does_not_praise_what_does_not_hold():
    X, z = concept(("toxic", "neutral"), rows=200)
    est = rs.MeanMatching(source="toxic", target="neutral").fit(X, z)
    other = np.where(z == "toxic", "neutral", "toxic")
    said = repr(est.certify(X, other)).replace("\n", " ")
    assert "not smaller than before" in said
    assert "have the mean of" not in said


def test_a_class_without_claims_is_said_to_have_none():
    class Shift(rs.MeanMatching):
        """Claims are not inherited."""

    assert "claims nothing" in repr(Shift().fit(*concept()).certificate_)


@pytest.mark.parametrize("estimator", [*ALL, rs.NaturalSteering])
def test_the_repr_of_an_unfitted_estimator_is_its_call(estimator):
    assert repr(estimator()) == f"{estimator.__name__}()"
    assert eval(repr(estimator()), {estimator.__name__: estimator}).get_params() == estimator().get_params()


def test_parameters_are_named_as_they_were_given():
    est = rs.MiMiC(source="a", target=["b", "c"], shrinkage="oas")
    assert repr(est) == "MiMiC(shrinkage='oas', source='a', target=['b', 'c'])"
    with sklearn.config_context(print_changed_only=False):
        assert "random_state=None" in repr(est)
    assert repr(rs.NaturalSteering(with_shift=np.ones(4096))) == "NaturalSteering(with_shift=<array (4096,)>)"


def test_the_html_of_a_fitted_estimator_shows_the_verdict():
    X, z = concept(("toxic", "neutral"))
    est = rs.MiMiC(source="toxic", target="neutral").fit(X, z)
    verdict = "the rows labelled &#x27;toxic&#x27; have the mean and covariance of &#x27;neutral&#x27;"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = est._repr_html_()
        piped = make_pipeline(clone(est), LogisticRegression()).fit(X, z)._repr_html_()
        bundle = est._repr_mimebundle_()
        unfitted = [estimator()._repr_html_() for estimator in (*ALL, rs.NaturalSteering)]
    assert verdict in alone
    assert verdict in bundle["text/html"]
    assert bundle["text/plain"] == repr(est)
    assert verdict in piped
    assert all("Parameters" in page for page in unfitted)
    assert verdict not in unfitted[0]


def test_the_html_of_a_partly_fitted_estimator_computes_no_map():
    X, z = concept()
    est = rs.LEACE().partial_fit(X[:5], z[:5])  # one class only: a map would raise
    assert "computed when it is next used" in est._repr_html_()
    assert est._steering is None


def test_a_pipeline_names_a_fitted_step_by_its_call():
    X, z = concept()
    pipe = make_pipeline(rs.LEACE(shrinkage="oas"), LogisticRegression()).fit(X, z)
    assert "LEACE(shrinkage='oas')" in repr(pipe)
    assert "On the data" not in repr(pipe)


def test_long_lists_say_how_many_are_left_out():
    assert listed(["a", "b", "c"], 2) == "a, b, … and 1 more"
    assert listed(["a", "b"], 2) == "a, b"
    assert "and 988 more classes" in repr(many_classes())
    assert shortened(LONG, 9) == "xxxxxx…xx"
    long_card = Card("t", facts=tuple((f"fact {i}", "value " * 20) for i in range(40))).text()
    assert long_card.splitlines()[-1].strip().startswith("… and ")
    assert len(long_card) <= 2000


def test_a_tuned_steering_gives_effect_and_price_first():
    lines = repr(tuned("rude")).splitlines()
    assert lines[0].startswith("Tuned steering from 'rude'")
    assert "share of continuations judged" in repr(tuned("rude"))
    assert "13 candidates: 1 chosen" in repr(tuned("rude"))
    assert "a lock made it again" in repr(tuned("rude", None))


def test_wide_gates_show_shapes_and_no_numbers():
    gate = LinearGate(("a", "b"), np.full((1, 4096), 0.123456789), np.zeros(1))
    assert "coef (1, 4096)" in repr(gate)
    assert "0.1234" not in repr(gate)
