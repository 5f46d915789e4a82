"""Objects draw themselves: on new axes or on given ones, legible whatever the values, by the extra ``report``."""

import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery.errors import ParameterError, SurgeryError
from tests.lm.test_import import BLOCKED
from tests.shown.objects import ATTACK, LONG, concept, many_classes, tuned

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.filterwarnings("ignore::repsurgery.errors.SurgeryWarning")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawable():
    X, z = concept(("toxic", "neutral"))
    mimic = rs.MiMiC(source="toxic", target="neutral", shrinkage="oas").fit(X, z)
    rated = rs.LEACE(concept_type="continuous").fit(X, X[:, :2] + np.random.default_rng(0).normal(size=(len(X), 2)))
    return {
        "certificate": mimic.certificate_,
        "measured": mimic.certify(X, z),
        "sources": rs.MeanMatching.from_moments(many_classes(40, 4)).certificate_,
        "continuous": rated.certificate_,
        "strange labels": rs.LEACE().fit(*concept((ATTACK, LONG))).certificate_,
        "dense": mimic.map_,
        "low rank": rs.LEACE().fit(X, z).map_,
        "shift": rs.Translation(np.ones(4)),
        "identity": rs.Identity(3),
        "spike": rs.Diagonal(np.r_[np.full(99, 1.01), 1e4], np.zeros(100)),
        "moments": rs.Moments.of(X),
        "few rows": rs.Moments.of(X[:3]),
        "classes": many_classes(40, 4),
        "strange classes": rs.ClassMoments.of(*concept((ATTACK, LONG))),
        "tuned": tuned(),
    }


def boxes(figure):
    """Return the boxes of all texts that are drawn, ticks included."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    axis = figure.axes[0]
    ticks = [t.label1 for a in (axis.xaxis, axis.yaxis) for t in a.get_major_ticks()]
    low, high = sorted(axis.get_xlim())
    texts = [t for t in ticks if t.get_text() and t.get_visible()]
    texts = [
        t
        for t in texts
        if t.axes is not None and (t not in axis.get_xticklabels() or low <= t.get_position()[0] <= high)
    ]
    found = [t for t in (*texts, *axis.texts, axis.xaxis.label, axis.yaxis.label) if t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found]


@pytest.mark.parametrize("name", drawable())
def test_every_picture_is_drawn_on_new_and_on_given_axes(name):
    value = drawable()[name]
    alone = value.plot()
    assert isinstance(alone, mpl.axes.Axes)
    assert alone.get_xlabel()
    assert alone.get_title(loc="left") or name == "tuned"
    given = plt.subplots(1, 2, figsize=(14, 4), layout="constrained")[1][1]
    assert value.plot(ax=given) is given
    given.figure.canvas.draw()


@pytest.mark.parametrize("name", [n for n in drawable() if n != "tuned"])
def test_no_text_lies_on_another(name):
    found = boxes(drawable()[name].plot().figure)
    for i, (text, box) in enumerate(found):
        for other, its in found[i + 1 :]:
            assert not (box.shrunk(0.98, 0.9).overlaps(its.shrunk(0.98, 0.9))), (text, other)


def test_texts_on_each_other_would_be_noticed():
    axis = rs.Identity(3).plot()
    axis.annotate("one", (2, 1))
    axis.annotate("two", (2, 1))
    (_, first), (_, second) = [(text, box) for text, box in boxes(axis.figure) if text in ("one", "two")]
    assert first.overlaps(second)


def test_a_huge_gap_leaves_the_others_visible():
    certificate = drawable()["certificate"]
    record = replace(certificate.by_source["toxic"], covariance_gap=5e4)
    axis = replace(certificate, by_source={"toxic": record}).plot()
    assert axis.get_xlim()[1] < 300
    assert any("times" in text.get_text() for text in axis.texts)
    assert len(axis.get_xticks()) < 15


def test_a_spectrum_over_many_decades_has_few_ticks():
    values = np.random.default_rng(0).normal(size=(300, 60)) * np.logspace(0, -6, 60)
    axis = rs.Moments.of(values).plot()
    assert axis.get_yscale() == "log"
    assert len(axis.get_yticks()) < 12
    assert rs.Moments.of(values[:, :2]).plot().get_yscale() == "linear"


@pytest.mark.parametrize("name", ["dense", "low rank", "shift", "identity", "spike"])
def test_singular_values_are_those_of_the_weight(name):
    m = drawable()[name]
    assert_allclose(m.singular_values(), np.linalg.svd(m.weight, compute_uv=False), atol=1e-12)


def test_singular_values_of_wide_low_rank_maps_need_no_dense_matrix():
    rng = np.random.default_rng(0)
    for d, r, s in ((30, 3, 0.5), (30, 20, 1.0), (5, 0, 2.0)):
        m = rs.LowRank(rng.normal(size=(d, r)), rng.normal(size=(r, d)), np.zeros(d), s)
        assert_allclose(m.singular_values(), np.linalg.svd(m.weight, compute_uv=False), atol=1e-10)
        assert_allclose(m.singular_values()[0], m.gain(), rtol=1e-6)


@pytest.mark.parametrize("rows", [3, 60])
def test_the_spectrum_of_moments_is_that_of_the_covariance(rows):
    X = concept()[0][:rows]
    m = rs.Moments.of(X)
    assert_allclose(m.spectrum(), np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1], atol=1e-12)
    assert_allclose(m.spectrum().sum(), m.trace)


def test_a_steering_made_by_a_lock_has_nothing_to_draw():
    with pytest.raises(SurgeryError, match="without a lock"):
        tuned("rude", None).plot()


def test_what_is_not_axes_is_refused():
    with pytest.raises(ParameterError, match="Axes"):
        rs.Identity(3).plot(ax="here")


def test_without_matplotlib_the_error_names_the_extra():
    code = BLOCKED.format(missing=("matplotlib",)) + (
        "import numpy as np, repsurgery as rs\n"
        "m = rs.Diagonal(np.ones(3), np.ones(3)); repr(m)\n"
        "try: m.plot()\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "repsurgery[report]" in said
