"""The sketch names what was changed on one path; what reaches both paths is the ledger's to name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import repsurgery as rs
from repsurgery.errors import FileFormatError, LedgerError, ShapeError, SketchError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.moments import CrossMoments
from repsurgery.moments import cross as cross_module
from repsurgery.moments.sketch import DIRECTIONS, VERSION, Sketch, directions
from repsurgery.moments.stream import stream_moments
from tests.oracles import two_pass
from tests.strategies import EPS, structured, structured_rows

FILES = Path(__file__).parent / "files"
SMALL = 1e-6
"""The smallest change that must be named, as a share of the trace."""
SMALL_IN_FLOAT32 = 1e-3
"""The same for products in float32, whose own rounding is up to 6e-5."""
KINDS = ("sparse", "zero", "counts", "constant", "normal", "same", "tied", "far", "huge", "sum")


def rows(n, seed=0):
    return structured(seed, n, KINDS)


def spread(m, change):
    """Return the moments with another scatter, or with the factor of it, and with the sketch as it was."""
    S = change(m.scatter.copy())
    if m.factor is None:
        return replace(m, dense=S)
    values, vectors = np.linalg.eigh(S)
    top = np.argsort(values)[max(len(values) - len(m.factor), 0) :]
    return replace(m, factor=np.sqrt(np.maximum(values[top], 0))[:, None] * vectors[:, top].T)


def entry(j, k, share):
    def change(S):
        S[j, k] += share * np.trace(S)
        S[k, j] = S[j, k]
        return S

    return change


def halved_between(S):
    """Halve the covariances between two sets of columns; every variance stays."""
    S[:5, 5:] /= 2
    S[5:, :5] /= 2
    return S


def swapped(S):
    """Swap two variances; the trace stays."""
    S[4, 4], S[6, 6] = S[6, 6], S[4, 4]
    return S


def moved(m, share):
    mean = m.mean.copy()
    mean[4] += share * np.sqrt(m.trace)
    return replace(m, mean=mean)


CORRUPTIONS = {
    "the scatter halved": lambda m, small: spread(m, lambda S: S / 2),
    "the scatter slightly too large": lambda m, small: spread(m, lambda S: S * (1 + small)),
    "a small share of the trace added to one variance": lambda m, small: spread(m, entry(4, 4, small)),
    "a small share of the trace added between two columns": lambda m, small: spread(m, entry(4, 6, small)),
    "covariances between two sets of columns halved": lambda m, small: spread(m, halved_between),
    "two variances swapped": lambda m, small: spread(m, swapped),
    "the mean moved by a small share of the spread": lambda m, small: moved(m, small),
    "the weight slightly too large": lambda m, small: replace(m, weight=m.weight * (1 + small)),
    "a row more": lambda m, small: replace(m, count=m.count + 1),
    "the residue of the mean replaced": lambda m, small: replace(m, residue=np.full(m.dim, 1e-3)),
    "a row less in the factor": lambda m, small: (
        spread(m, lambda S: S * 0.99) if m.factor is None else replace(m, factor=m.factor[:-3])
    ),
}


@pytest.mark.parametrize(
    ("n", "precision", "small"),
    [(8, "float64", SMALL), (400, "float64", SMALL), (400, "float32-products", SMALL_IN_FLOAT32)],
    ids=["factor", "dense", "float32 products"],
)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_sketch_names_every_corruption_of_one_path(name, n, precision, small):
    X = rows(n)
    if precision == "float32-products":
        X[:, 8] /= (
            1e8  # beside a column of that size, covariances of the others are less than a thousandth of the trace
        )
    m = rs.Moments.of(X, precision=precision)
    m.check_sketch()
    changed = CORRUPTIONS[name](m, small)
    with pytest.raises(SketchError, match="disagree with the sketch") as raised:
        changed.check_sketch()
    assert "Count the rows again" in str(raised.value)
    with pytest.raises(SketchError, match="class 'a'"):
        rs.MiMiC(source="a", target="b").fit_moments(
            rs.ClassMoments({"a": changed, "b": rs.Moments.of(rows(400, seed=1))})
        )


def test_the_sketch_cannot_see_what_reaches_both_paths():
    X = rows(60)
    twice = rs.Moments.of(np.vstack([X, X[:20]]))
    twice.check_sketch()  # rows that were counted twice are in the scatter and in the sketch


def test_variances_of_small_columns_are_checked_one_by_one():
    # beside a column of scale 1e8 a halved covariance elsewhere is rounding along every direction
    X = structured(0, 300, ("huge", "normal", "sparse", "counts"))
    m = rs.Moments.of(X)

    def halve(S):
        S[1:, 1:] /= 2
        return S

    changed = spread(m, halve)
    V = directions(4)
    along = [np.einsum("jk,jk->k", V, k.scatter @ V) for k in (m, changed)]
    assert_allclose(along[0], along[1], rtol=1e-11)
    with pytest.raises(SketchError, match=r"the sum of squares of column [123] "):
        changed.check_sketch()


def test_a_file_whose_scatter_was_changed_with_its_digest_made_right_is_refused_by_the_sketch(tmp_path):
    for name, m in {
        "moments": rs.Moments.of(rows(50)),
        "class-moments": rs.ClassMoments.of(rows(50), [0, 1] * 25),
    }.items():
        rs.save(m, tmp_path / name)
        contents = read_file(tmp_path / name, kind=name)
        arrays = {**contents.arrays, "0.dense": contents.arrays["0.dense"] * (1 + SMALL)}
        write_file(
            tmp_path / name, Contents(contents.kind, contents.header, arrays)
        )  # the digest is that of the arrays
        with pytest.raises(FileFormatError, match="the sketch"):
            rs.load(tmp_path / name)


@pytest.mark.parametrize("change", ["squares", "bound", "mean"])
def test_a_truncated_sketch_is_refused(tmp_path, change):
    rs.save(rs.Moments.of(rows(50)), tmp_path / "m")
    contents = read_file(tmp_path / "m")
    key = f"0.sketch.{change}"
    for arrays in (
        {**contents.arrays, key: contents.arrays[key][:-1]},
        {name: array for name, array in contents.arrays.items() if name != key},
    ):
        write_file(tmp_path / "m", Contents(contents.kind, contents.header, arrays))
        with pytest.raises(FileFormatError, match=r"sketch of 1?[0-9] columns needs a float64 array"):
            rs.load(tmp_path / "m")


def test_a_sketch_of_infinite_bounds_does_not_pass_everything(tmp_path):
    m = rs.Moments.of(rows(50))
    loose = replace(m.sketch, bound=np.full(m.dim, np.inf))
    with pytest.raises(SketchError, match="numbers that no rows can have"):
        replace(m, dense=m.dense * 2, sketch=loose).check_sketch()


def test_directions_of_another_version_are_refused_with_the_remedy(tmp_path):
    m, other = rs.Moments.of(rows(50)), rs.Moments.of(rows(50, seed=1))
    newer = replace(m, sketch=replace(m.sketch, version=VERSION + 1))
    with pytest.raises(
        SketchError, match=r"directions of version 2, .* the version of repsurgery that wrote"
    ) as raised:
        newer.check_sketch()
    assert "altered" not in str(raised.value)
    assert "Count the rows" not in str(raised.value)
    with pytest.raises(SketchError, match="Count the rows of both again"):
        newer + other
    rs.save(m, tmp_path / "m")
    contents = read_file(tmp_path / "m")
    header = {"classes": [{**c, "sketch": {**c["sketch"], "version": VERSION + 1}} for c in contents.header["classes"]]}
    write_file(tmp_path / "m", Contents(contents.kind, header, contents.arrays))
    with pytest.raises(FileFormatError, match="directions of version 2"):
        rs.load(tmp_path / "m")


def test_parts_of_different_width_are_refused():
    wide, narrow = rs.Moments.of(rows(30)), rs.Moments.of(rows(30)[:, :4])
    with pytest.raises(ShapeError):
        wide + narrow
    with pytest.raises(SketchError, match=r"10 columns .* one of 4 columns"):
        wide.sketch + narrow.sketch
    z = np.stack([np.arange(30.0), np.arange(30.0) ** 2], axis=1)
    whole = CrossMoments.of(rows(30), z)
    for other in (CrossMoments.of(rows(30)[:, :4], z), CrossMoments.of(rows(30), z[:, :1])):
        for combine in (CrossMoments.__add__, CrossMoments.__sub__):
            with pytest.raises(ShapeError, match=r"cannot be combined; use one (site|concept) for both"):
                combine(whole, other)


@pytest.mark.parametrize("name", ["class-moments", "cross-moments", "mimic", "leace"])
def test_files_of_version_0_1_load_and_say_that_they_carry_no_sketch(name):
    value = rs.load(FILES / f"{name}-0.1.safetensors")
    if name in ("mimic", "leace"):
        assert value.certificate_.measured_on == "moments"
        assert value.certificate_.held_out is None
        value = value.moments_
    assert "of version 0.1; nothing independent checks them" in " ".join(repr(value).split())
    value.check_sketch()  # nothing to compare
    if name == "class-moments":
        assert all(m.sketch is None and m.ledger is None for m in value.values())
        rs.MiMiC(source="a", target="b").fit_moments(value)
        sums = value + rs.ClassMoments.of(np.eye(4, 3), ["a", "a", "b", "b"])
        assert all(m.sketch is None for m in sums.values())  # half a sketch would be none


def test_derived_moments_carry_no_sketch():
    from repsurgery.certificates.from_moments import pushforward

    m = rs.Moments.of(rows(50))
    image, _ = pushforward(m, rs.Diagonal(np.linspace(1, 2, m.dim), np.zeros(m.dim)))
    assert image.sketch is None
    assert image.ledger is None
    assert m.derived(mean=m.mean + 1).sketch is None


def test_the_directions_never_change():
    # the first numbers of version 1: a file written by one release is checked by the next
    assert_allclose(directions(3)[0], FIRST, rtol=1e-15)
    assert directions(3).shape == (3, DIRECTIONS)
    V = directions(4096)
    assert abs(V.mean()) < 4 / np.sqrt(V.size)
    assert abs(V.var() - 1) < 4 * np.sqrt(2 / V.size)
    assert np.abs(np.corrcoef(V.T) - np.eye(DIRECTIONS)).max() < 4 / np.sqrt(len(V))


FIRST = [-1.2842593529075388, 1.5030636433565856, -0.15100321364319244, 0.1659008990148002]


@given(structured_rows())
def test_a_sketch_is_counted_from_the_rows_alone(data):
    counted = slice(None) if data.w is None else data.w > 0
    X, w = data.X[counted].astype(np.float64), None if data.w is None else data.w[counted]
    sketch = Sketch.of(X, sample_weight=w)
    mean, scatter = two_pass(X, w)
    V = directions(X.shape[1])
    size = np.diagonal(scatter)
    tolerance = 32 * (len(X) + X.shape[1]) * EPS
    assert sketch.count == len(X)
    assert (np.abs(sketch.squares[: sketch.dim] - size) <= tolerance * size).all()
    along = np.einsum("jk,jk->k", V, scatter @ V)
    assert (np.abs(sketch.squares[sketch.dim :] - along) <= tolerance * (len(size) * np.square(V).T @ size)).all()
    assert_allclose(sketch.mean + sketch.residue, mean, rtol=4 * EPS, atol=tolerance * np.sqrt(size.max(initial=0.0)))


@given(structured_rows(min_rows=2, max_rows=24), st.data())
def test_no_valid_sum_or_removal_is_refused(data, draw):
    rng = np.random.default_rng(len(data.X))
    order = rng.permutation(len(data.X))
    cut = draw.draw(st.integers(1, len(order)))
    if data.w is not None and draw.draw(st.booleans()):
        # the mean of what is left is known only to the rounding of the mean of what was removed
        data = data._replace(w=data.w * 10.0 ** rng.integers(-4, 5, size=len(data.w)))
    whole = rs.Moments.of(data.X, sample_weight=data.w)
    part = order[:cut]
    if data.w is not None and not data.w[part].any():
        return
    removed = rs.Moments.of(data.X[part], sample_weight=None if data.w is None else data.w[part])
    left = whole - removed
    for m in (left, left + removed, left + removed - removed):
        m.check_sketch()


def test_after_many_removals_rounding_is_not_taken_for_an_error():
    # what is left is a millionth of what was removed, and as inexact as that was
    rng = np.random.default_rng(0)
    m = rs.Moments.of(1e-3 * rng.normal(size=(50, 6)))
    for seed in range(20):
        big = rs.Moments.of(np.random.default_rng(seed + 1).normal(size=(80, 6)))
        m = m + big - big
    m.check_sketch()
    lost = np.abs(m.sketch.squares[:6] - np.diagonal(m.scatter)).max() / m.trace
    assert lost > 1e-13  # relative to what is left, a fixed tolerance of rounding would have to grow
    with pytest.raises(SketchError):
        replace(m, dense=m.dense + 1e-6 * m.sketch.bound.max() * np.eye(6)).check_sketch()


@given(structured_rows(classes=2, min_rows=2), st.integers(1, 9))
def test_streams_and_groups_carry_a_sketch(data, size):
    batches = [(data.X[i : i + size], data.z[i : i + size]) for i in range(0, len(data.X), size)]
    for m in stream_moments(batches).values():
        assert m.sketch.count == m.count
        m.check_sketch()
    if data.groups is not None:
        for m in rs.ClassMoments.of(data.X, data.z, sample_weight=data.w, groups=data.groups).values():
            m.check_sketch()
            if m.groups is not None and 1 < m.groups.count < m.count:
                more = m.groups.squares * (1 + 1e-6)  # at most the square of the total weight is possible
                wrong = replace(m.groups, squares=more if more <= m.weight**2 else m.groups.squares * (1 - 1e-6))
                with pytest.raises(SketchError, match="groups"):
                    replace(m, groups=wrong).check_sketch()


@given(structured_rows(min_rows=3, grouped=False), st.integers(0, 2**32 - 1))
def test_the_joint_sketch_sees_a_changed_cross_scatter(data, seed):
    n = len(data.X)
    Z = structured(seed, n, ("normal", "counts"))
    joint = CrossMoments.of(data.X, Z, sample_weight=data.w)
    joint.check_sketch()
    sizes = np.sqrt(np.outer(joint.rows.variance, joint.concept.variance)) * joint.rows.weight
    j, k = np.unravel_index(np.argmax(sizes), sizes.shape)
    cross = joint.cross.copy()
    step = 1e-4 * sizes[j, k]
    cross[j, k] += -step if cross[j, k] > 0 else step  # towards zero, so that no correlation exceeds 1
    if step > 0:
        with pytest.raises(SketchError, match="cross scatter disagrees"):
            replace(joint, cross=cross).check_sketch()
    cut = n // 2
    parts = [(data.X[i], Z[i], None if data.w is None else data.w[i]) for i in (slice(0, cut), slice(cut, None))]
    if all(w is None or w.any() for _, _, w in parts):
        a, b = (CrossMoments.of(x, z, sample_weight=w) for x, z, w in parts)
        if not a.rows.ledger.shared(b.rows.ledger):
            (a + b).check_sketch()
            (a + b - b).check_sketch()


def test_a_ledger_that_does_not_add_up_is_refused():
    m = rs.Moments.of(rows(50))
    part = m.ledger.parts[0]
    with pytest.raises(LedgerError, match=r"the 1 parts? in their ledger hold"):
        replace(m, ledger=replace(m.ledger, parts=(replace(part, rows=49),))).check_sketch()


def _without(names, *facts):
    """Return a change of a file: these arrays, and these facts of each class, are taken away."""

    def change(contents):
        def kept(entry):
            sketch = {k: v for k, v in entry["sketch"].items() if f"sketch.{k}" not in facts}
            entry = {**entry, "sketch": sketch}
            return {k: v for k, v in entry.items() if k not in facts}

        def pruned(header):
            if "classes" in header:
                return {"classes": [kept(entry) for entry in header["classes"]]}
            return {name: pruned(part) for name, part in header.items()}

        arrays = {k: v for k, v in contents.arrays.items() if not any(name in k for name in names)}
        return Contents(contents.kind, pruned(contents.header), arrays)

    return change


STRIPPED = {
    "the facts of the sketch": _without((), "sketch"),
    "facts and ledger": _without((), "sketch", "ledger"),
    "facts and arrays": _without(("sketch.",), "sketch"),
    "facts, arrays and the joint sketch": _without(("sketch.", "joint"), "sketch"),
    "arrays": _without(("sketch.",)),
    "one array": _without(("sketch.residue",)),
    "the version of the directions": _without((), "sketch.version"),
    "the groups of the sketch": _without((), "sketch.groups"),
}


@pytest.mark.parametrize("name", STRIPPED)
def test_a_file_that_lost_a_part_of_its_sketch_is_refused_with_the_remedy(name, tmp_path):
    X = rows(60)
    for value in (rs.Moments.of(X), rs.ClassMoments.of(X, np.arange(60) % 2), CrossMoments.of(X, X[:, 2])):
        rs.save(value, tmp_path / "m")
        rs.load(tmp_path / "m").check_sketch()
        write_file(tmp_path / "m", STRIPPED[name](read_file(tmp_path / "m")))
        with pytest.raises(FileFormatError, match="ount the rows again"):
            rs.load(tmp_path / "m")


def test_cross_moments_without_their_joint_sketch_are_refused(tmp_path):
    X = rows(60)
    m = CrossMoments.of(X, X[:, 2] + np.arange(60))
    stripped = replace(m, joint=None, cross=m.cross * 0.5)
    with pytest.raises(SketchError, match=r"the joint sketch is missing.*Count the rows again"):
        stripped.check_sketch()
    with pytest.raises(SketchError, match="the joint sketch is missing"):
        rs.LEACE(concept_type="continuous").fit_moments(stripped)
    rs.save(m, tmp_path / "m")
    write_file(tmp_path / "m", _without(("joint",))(read_file(tmp_path / "m")))
    with pytest.raises(FileFormatError, match="the joint sketch is missing"):
        rs.load(tmp_path / "m")
    with pytest.raises(SketchError, match="ledger of their parts, and no sketch"):
        replace(m.rows, sketch=None).check_sketch()
    # without any of the three there is nothing to compare, and an empty remainder is whole
    replace(m, joint=None, rows=m.rows.derived(), concept=m.concept.derived()).check_sketch()
    (m - m).check_sketch()


def test_a_weight_is_compared_to_ten_digits():
    m = rs.Moments.of(rows(40), sample_weight=np.linspace(1, 2, 40))
    with pytest.raises(SketchError, match="rows of weight"):
        replace(m, weight=m.weight * (1 + 1e-9)).check_sketch()


def test_a_ledger_of_another_weight_is_refused():
    m = rs.Moments.of(rows(50))
    part = m.ledger.parts[0]
    for share in (1e-6, 0.05):
        heavier = replace(m.ledger, parts=(replace(part, weight=part.weight * (1 + share)),))
        with pytest.raises(LedgerError, match="hold 50 rows of weight"):
            replace(m, ledger=heavier).check_sketch()


@given(structured_rows(min_rows=4, weighted=False, grouped=False))
def test_the_bound_is_what_was_added_and_grows_with_what_a_removal_magnifies(data):
    cut = len(data.X) // 2
    a, b = (rs.Moments.of(X).sketch for X in (data.X[:cut], data.X[cut:]))
    both = a + b
    _, scatter = two_pass(data.X)
    assert_allclose(both.bound, np.diagonal(scatter), rtol=1e-9, atol=1e-300)
    left = both - b
    assert (left.bound >= np.sqrt(both.weight / left.weight) * both.bound * (1 - EPS)).all()
    # of so few rows, the digits that the weight loses add less than a thousandth
    assert (left.bound <= 2 * np.sqrt(both.weight / left.weight) * both.bound * 1.001).all()


def test_a_removal_removes_its_groups_from_the_sketch():
    X, groups = rows(40), np.arange(40) // 4
    whole, part = rs.Moments.of(X, groups=groups), rs.Moments.of(X[:12], groups=groups[:12])
    left = whole - part
    left.check_sketch()
    assert left.sketch.groups == (7.0, 7 * 16.0)
    with pytest.raises(SketchError, match="number of groups"):
        replace(left, groups=whole.groups).check_sketch()


def shifted_cross(m, share):
    """Return cross moments whose cross scatter is off by this share of its size, towards zero."""
    sizes = np.sqrt(np.outer(m.rows.variance, m.concept.variance)) * m.rows.weight
    cross = m.cross.copy()
    cross[0] -= np.copysign(share * sizes[0], cross[0])
    return replace(m, cross=cross)


@pytest.mark.parametrize(("precision", "share"), [("float64", 1e-9), ("float32-products", 1e-3)])
def test_a_small_change_of_the_cross_scatter_is_named_counted_loaded_and_fitted(
    precision, share, monkeypatch, tmp_path
):
    X = structured(0, 200, ("normal", "counts", "sparse"))
    z = X[:, 0] + np.arange(200) / 50
    changed = shifted_cross(CrossMoments.of(X, z, precision=precision), share)
    with pytest.raises(SketchError, match="cross scatter disagrees"):
        changed.check_sketch()
    with pytest.raises(SketchError, match="cross scatter disagrees"):
        rs.LEACE(concept_type="continuous").fit_moments(changed)
    rs.save(changed, tmp_path / "m")
    with pytest.raises(FileFormatError, match="cross scatter disagrees"):
        rs.load(tmp_path / "m")
    real = cross_module._products

    def wrong(*args, **options):
        return real(*args, **options) * (1 if options else 1 - share)

    monkeypatch.setattr(cross_module, "_products", wrong)
    with pytest.raises(SketchError, match="cross scatter disagrees"):
        CrossMoments.of(X, z, precision=precision)


def test_each_direction_of_the_joint_sketch_is_compared():
    X = structured(0, 200, ("normal", "counts", "sparse"))
    m = CrossMoments.of(X, X[:, 0] + np.arange(200) / 50)
    for i in range(DIRECTIONS):
        joint = m.joint.copy()
        joint[m.dim + i] *= 1 + 1e-3
        with pytest.raises(SketchError, match=f"along direction {i + 1}"):
            replace(m, joint=joint).check_sketch()
