"""`repsurgery apply`: a file of vectors or texts in, steered vectors out, whatever the formats."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

import repsurgery as rs
from repsurgery import lm
from repsurgery.gates import AlwaysGate, LabelsGate, LinearGate, SoftGate
from repsurgery.workflows import apply as workflow
from tests.certificates.test_outcome import outcome
from tests.lm.tiny_models import WIDTH, WORDS

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

D = 5
N = 137
MAP = rs.Dense(np.eye(D) + 0.3 * np.random.default_rng(5).normal(size=(D, D)), np.arange(D, dtype=float))
BY_FIRST = LinearGate((0, 1), np.eye(D)[:1], np.zeros(1))
GATED = rs.SteeringFunction({1: MAP}, BY_FIRST, (0, 1))
FORMATS = ("npy", "safetensors", "parquet")


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(N, D)).astype(np.float32)
    X[:, 2], X[5] = 1.0, 0.0  # a constant feature and a row of zeros
    return X


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def applied(run, tmp_path, monkeypatch):
    """Return a function that applies a steering in small blocks and gives the document of the command."""
    monkeypatch.setattr(workflow, "BLOCK", 8 * D * 10)

    def applied(function, source, out, *words):
        rs.save(function, tmp_path / "f.safetensors")
        result = run("apply", tmp_path / "f.safetensors", source, "--out", out, *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return applied


@pytest.fixture
def refused(run, tmp_path):
    """Return a function that gives the exit code and the error of a refused call, which leaves the output alone."""

    def refused(function, source, out, *words):
        rs.save(function, tmp_path / "f.safetensors")
        before = out.read_bytes() if out.is_file() else None
        result = run("apply", tmp_path / "f.safetensors", source, "--out", out, *words)
        assert (out.read_bytes() if out.is_file() else None) == before
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        return result.exit_code, " ".join(result.stderr.split())

    return refused


def write(path, X, **beside):
    """Write rows of any dtype of PyTorch or NumPy in the format that the ending names."""
    tensor = X if isinstance(X, torch.Tensor) else torch.from_numpy(np.array(X))
    match path.suffix:
        case ".npy":
            np.save(path, X)
        case ".safetensors":
            save_file({"rows": tensor.contiguous(), **beside}, path, metadata={"who": "ours"})
        case ".parquet":
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(X).reshape(-1)), X.shape[1])
            pq.write_table(pa.table({"id": np.arange(len(X)), "rows": lists, **beside}), path, row_group_size=30)
    return path


def read(path):
    match path.suffix:
        case ".npy":
            return np.load(path)
        case ".safetensors":
            (name,) = {"rows", "vectors"} & {*load_tensors(path)}
            tensor = load_tensors(path)[name]
            return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        case _:
            (name,) = {"rows", "vectors"} & {*pq.read_schema(path).names}
            return np.stack(pq.read_table(path)[name].to_numpy(zero_copy_only=False))


def assert_rounded(found, expected):
    """Blocks may round a product in another last place than the whole."""
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=4 * eps, atol=4 * eps * np.abs(expected).max())


@pytest.mark.parametrize("into", FORMATS)
@pytest.mark.parametrize("of", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_format_gives_the_function(applied, rows, tmp_path, of, into, dtype):
    X = rows.astype(dtype)
    done = applied(GATED, write(tmp_path / f"x.{of}", X), tmp_path / f"y.{into}", "--strength", 0.5)
    expected = GATED.interpolate(0.5)(X).astype(dtype)
    found = read(tmp_path / f"y.{into}")
    assert done["dtype"] == dtype
    assert found.dtype == dtype
    assert_rounded(found, expected)
    moved = np.linalg.norm(expected.astype(float) - X, axis=1)
    assert done["steered_share"] == np.mean(X[:, 0] >= 0) and done["rows"] == N and done["strength"] == 0.5
    assert done["mean_displacement"] == pytest.approx(moved.mean(), rel=1e-12)


@pytest.mark.parametrize("into", FORMATS)
def test_bfloat16_stays_where_the_format_has_it(applied, rows, tmp_path, into):
    X = torch.from_numpy(rows).bfloat16()
    done = applied(GATED, write(tmp_path / "x.safetensors", X), tmp_path / f"y.{into}")
    exact = torch.from_numpy(GATED(X.float().numpy()))
    assert done["dtype"] == ("bfloat16" if into == "safetensors" else "float32")
    expected = exact.bfloat16().float() if into == "safetensors" else exact
    found = read(tmp_path / f"y.{into}")
    np.testing.assert_allclose(found, expected, rtol=2**-7 if into == "safetensors" else 1e-6, atol=1e-6)
    assert into != "safetensors" or (torch.from_numpy(found).bfloat16().float().numpy() == found).all()


def test_rows_outside_the_gate_come_back_bit_for_bit(applied, rows, tmp_path):
    for of in FORMATS:
        applied(GATED, write(tmp_path / f"x.{of}", rows), tmp_path / f"y.{of}")
        outside = rows[:, 0] < 0
        assert 0 < outside.sum() < N
        np.testing.assert_array_equal(read(tmp_path / f"y.{of}")[outside], rows[outside])


def test_what_is_beside_the_vectors_is_kept(applied, rows, tmp_path):
    words = [f"text {i}" for i in range(N)]
    applied(GATED, write(tmp_path / "x.parquet", rows, text=words), tmp_path / "y.parquet")
    before, after = (pq.read_table(tmp_path / name) for name in ("x.parquet", "y.parquet"))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.select(["id", "text"]).equals(before.select(["id", "text"]))

    beside = {"a_norm": torch.arange(N), "zs": torch.zeros(3, 2, 2, dtype=torch.float16)}
    write(tmp_path / "x.safetensors", rows, **beside)
    done = applied(GATED, tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    after = load_tensors(tmp_path / "y.safetensors")
    assert after.keys() == {"rows", *beside} and done["rows"] == N
    assert all(torch.equal(after[name], tensor) for name, tensor in beside.items())
    head = (tmp_path / "y.safetensors").read_bytes()
    assert json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])["__metadata__"] == {"who": "ours"}


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), D)])
def test_columns_of_lists_keep_their_type(applied, rows, tmp_path, kind):
    table = pa.table({"rows": pa.array([*map(list, rows.astype(np.float16))], kind), "n": [1] * N})
    pq.write_table(table, tmp_path / "x.parquet")
    applied(GATED, tmp_path / "x.parquet", tmp_path / "y.parquet")
    assert (
        pq.read_schema(tmp_path / "y.parquet").field("rows").type
        == pq.read_schema(tmp_path / "x.parquet").field("rows").type
    )
    X = read(tmp_path / "x.parquet")
    assert_rounded(read(tmp_path / "y.parquet"), GATED(X).astype(X.dtype))


def test_plain_columns_are_features_in_the_order_named(applied, rows, tmp_path):
    names = [f"f{i}" for i in range(D)]
    table = {name: rows[:, i] for i, name in enumerate(names)} | {
        "count": np.arange(N),
        "f1": (rows[:, 1] * 9).astype(int),
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    columns = [word for name in names for word in ("--column", name)]
    applied(GATED, tmp_path / "x.parquet", tmp_path / "y.parquet", *columns)
    after = pq.read_table(tmp_path / "y.parquet")
    X = np.column_stack([table[name] for name in names]).astype(float)
    np.testing.assert_allclose(np.column_stack([after[name] for name in names]), GATED(X), rtol=1e-6, atol=1e-6)
    assert after["count"].to_pylist() == list(range(N)) and after.column_names == list(table)


@pytest.mark.parametrize("classes", [(0, 1), ("0", "1")])
@pytest.mark.parametrize("of", FORMATS)
def test_labels_take_the_place_of_the_gate(applied, rows, tmp_path, rng, of, classes):
    z = rng.integers(0, 2, N)
    function = rs.SteeringFunction({classes[1]: MAP}, LabelsGate(classes), classes)
    write(
        tmp_path / f"x.{of}", rows, **({} if of == "npy" else {"z": torch.from_numpy(z) if of == "safetensors" else z})
    )
    np.save(tmp_path / "z.npy", z)
    named = ("--labels", tmp_path / "z.npy") if of == "npy" else ("--label-column", "z")
    done = applied(function, tmp_path / f"x.{of}", tmp_path / "y.npy", *named)
    assert_rounded(np.load(tmp_path / "y.npy"), np.where(z[:, None] == 1, MAP(rows), rows))
    assert done["steered_share"] == z.mean()


def test_labels_are_asked_for_and_refused_where_they_mean_nothing(refused, rows, tmp_path):
    x, y = write(tmp_path / "x.npy", rows), tmp_path / "y.npy"
    code, error = refused(rs.SteeringFunction({1: MAP}, LabelsGate((0, 1)), (0, 1)), x, y)
    assert code == 2 and "Name their column with --label-column, or their file with --labels" in error
    np.save(tmp_path / "z.npy", np.zeros(N, int))
    code, error = refused(rs.SteeringFunction({None: MAP}), x, y, "--labels", tmp_path / "z.npy")
    assert code == 2 and "Leave out the labels" in error
    for z, said in ((np.zeros(N - 1, int), "one label"), (np.full(N, 7), "Unknown concept labels [7]")):
        np.save(tmp_path / "z.npy", z)
        code, error = refused(GATED, x, y, "--labels", tmp_path / "z.npy")
        assert code == 1 and said in error


def test_a_soft_gate_counts_by_its_strength(applied, rows, tmp_path):
    gate = SoftGate((0, 1), np.eye(D)[:1], np.zeros(1), np.array([-1.0, 1.0]), np.array([0.0, 1.0]))
    function = rs.SteeringFunction({1: MAP}, gate, (0, 1))
    done = applied(function, write(tmp_path / "x.npy", rows), tmp_path / "y.npy")
    assert_rounded(np.load(tmp_path / "y.npy"), function(rows))
    assert done["steered_share"] == pytest.approx(gate.strength(rows).mean())


def test_the_strength_is_that_of_the_file_unless_another_is_named(applied, rows, tmp_path):
    x = write(tmp_path / "x.npy", rows)
    function = rs.SteeringFunction({None: MAP}).with_origin(strength=0.25)
    for words, strength in (((), 0.25), (("--strength", 1), 1.0), (("--strength", 0), 0.0)):
        done = applied(function, x, tmp_path / "y.npy", *words)
        assert_rounded(np.load(tmp_path / "y.npy"), function.interpolate(strength)(rows))
        assert done["strength"] == strength and done["steered_share"] == (strength != 0)


@pytest.mark.parametrize("scale", [0, -1, 0.5, 2])
@pytest.mark.parametrize(("own", "words"), [(None, ()), (0.25, ()), (0.25, ("--strength", 0.125))])
def test_a_scale_multiplies_the_strength(applied, rows, tmp_path, own, words, scale):
    write(tmp_path / "x.npy", rows)
    function = rs.SteeringFunction({None: MAP}).with_origin(strength=own).with_outcome(outcome())
    strength = scale * (0.125 if words else own or 1.0)
    done = applied(function, tmp_path / "x.npy", tmp_path / "y.npy", *words, "--scale", scale)
    assert done["strength"] == strength
    assert_rounded(np.load(tmp_path / "y.npy"), function.at(strength)(rows))


def test_what_was_not_measured_is_said(run, rows, texts, model_folder, tmp_path):
    """Of vectors and of texts, in the sentences of generate."""
    write(tmp_path / "x.npy", rows)
    shift = rs.SteeringFunction({None: MAP}).with_origin(strength=0.2).with_outcome(outcome())
    rs.save(shift, tmp_path / "f.safetensors")
    there = rs.SteeringFunction({None: rs.Translation(np.ones(WIDTH))}).with_origin(site="layers.1", strength=0.2)
    rs.save(there.with_outcome(outcome()), tmp_path / "t.safetensors")
    of_vectors = ("apply", tmp_path / "f.safetensors", tmp_path / "x.npy", "--out", tmp_path / "y.npy")
    of_texts = ("apply", tmp_path / "t.safetensors", texts, "--out", tmp_path / "y.npy", "--model", model_folder)
    for command in (of_vectors, of_texts):
        for words, far, other in (
            ((), 0, 0),
            (("--scale", 2), 0, 1),
            (("--strength", 0.39), 0, 1),
            (("--scale", 2.1), 1, 1),
            (("--strength", 1), 1, 1),
        ):
            result = run(*command, *words)
            assert result.exit_code == 0, result.output
            assert result.stderr.count("Warning:") == far == result.stderr.count("more than twice 0.2"), result.stderr
            assert result.output.count("it does not apply at strength") == other
    elsewhere = run(*of_texts, "--site", "layers.0")
    assert "fitted at 'layers.1' and is used at 'layers.0'" in " ".join(elsewhere.stderr.split())
    assert "measured at layers.1; it does not apply at layers.0" in " ".join(elsewhere.output.split())


@pytest.mark.parametrize("of", FORMATS)
def test_a_refusal_leaves_the_output_as_it_was(refused, rows, tmp_path, of):
    out = tmp_path / f"y.{of}"
    out.write_bytes(b"what was there before")
    wide = write(tmp_path / f"wide.{of}", np.hstack([rows, rows]))
    code, error = refused(GATED, wide, out)
    assert code == 1 and f"holds vectors of {2 * D} features; the steering was made for {D}" in error
    broken = rows.copy()
    broken[77, 3] = np.nan
    code, error = refused(GATED, write(tmp_path / f"nan.{of}", broken), out)
    assert code == 1 and "in row 77" in error
    huge = write(tmp_path / f"huge.{of}", (np.abs(rows) + 1).astype(np.float16) * 1000)
    code, error = refused(rs.SteeringFunction({None: rs.Diagonal(np.full(D, 1e3), np.zeros(D))}), huge, out)
    assert code == 1 and "beyond float16" in error


def test_an_input_is_never_the_output(refused, rows, tmp_path):
    x = write(tmp_path / "x.npy", rows)
    (tmp_path / "link.npy").symlink_to(x)
    for out in (x, tmp_path / "link.npy", tmp_path / "f.safetensors"):
        code, error = refused(GATED, x, out)
        assert code == 1 and "would be overwritten" in error


def test_shapes_and_formats_that_are_no_vectors_are_refused(refused, rows, tmp_path):
    y = tmp_path / "y.npy"
    for X, said in ((rows[0], "of shape (5,)"), (rows[None], "of shape (1, 137, 5)"), (rows > 0, "holds bool")):
        np.save(tmp_path / "x.npy", X)
        code, error = refused(GATED, tmp_path / "x.npy", y)
        assert code == 1 and said in error
    code, error = refused(GATED, tmp_path / "f.safetensors", y)
    assert code == 1 and "is a file of repsurgery" in error
    for x, out, said in (("x.txt", "y.npy", "x.txt ends in '.txt'"), ("x.npy", "y.csv", "vectors are written to")):
        code, error = refused(GATED, tmp_path / x, tmp_path / out)
        assert code == 1 and said in error
    code, error = refused(GATED, tmp_path / "x.npy", y, "--site", "final")
    assert code == 2 and "--site is for texts" in error


@pytest.fixture
def texts(tmp_path):
    lines = [f"{i},{WORDS[i % 7]} {WORDS[i % 11]},{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,text,tone", *lines]))
    return tmp_path / "texts.csv"


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_texts_give_the_states_of_a_steered_pass(applied, texts, model_folder, tmp_path, pooling, rng):
    push = rs.Dense(np.eye(WIDTH) + 0.1 * rng.normal(size=(WIDTH, WIDTH)), np.ones(WIDTH))
    function = rs.SteeringFunction({None: push}).with_origin(site="layers.1", strength=0.5, pooling=pooling)
    done = applied(function, texts, tmp_path / "y.parquet", "--model", model_folder)
    after = pq.read_table(tmp_path / "y.parquet")
    words = after["text"].to_pylist()
    model, tokenizer = lm.load(model_folder)
    with lm.steer(model, function, positions="all"):
        steered = lm.extract(model, tokenizer, words, site="layers.1", pooling=pooling, progress=False)
    np.testing.assert_allclose(np.stack(after["vectors"].to_numpy()), steered, rtol=1e-4, atol=1e-5)
    assert after.column_names == ["id", "text", "tone", "vectors"] and after["id"].to_pylist() == [*map(str, range(30))]
    assert done["rows"] == 30 and "layers.1" in done["read"]
    applied(function, texts, tmp_path / "y.npy", "--model", model_folder)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.stack(after["vectors"].to_numpy()))


def test_a_fitted_file_reads_texts_with_the_model_it_names(applied, fitted, texts, model_folder, tmp_path, monkeypatch):
    function = rs.load(fitted)
    monkeypatch.chdir(model_folder.parent)  # the origin names the last part of a folder's path
    done = applied(function, texts, tmp_path / "y.safetensors", "--text-column", "text", "--label-column", "tone")
    assert model_folder.name in done["read"] and done["steered_share"] == 0.5
    assert load_file(tmp_path / "y.safetensors")["vectors"].shape == (30, WIDTH)


def test_texts_without_a_model_are_refused(refused, texts, tmp_path):
    function = rs.SteeringFunction({None: rs.Translation(np.ones(WIDTH))})
    code, error = refused(function, texts, tmp_path / "y.npy")
    assert code == 1 and "names no model to read them with. Name it with --model" in error
    code, error = refused(function, texts, tmp_path / "y.npy", "--column", "x")
    assert code == 2 and "--column is for vectors" in error


def test_a_table_of_numbers_is_not_taken_for_texts(refused, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    function = rs.SteeringFunction({None: rs.Translation(np.ones(2))}).with_origin(model="m")
    code, error = refused(function, tmp_path / "x.csv", tmp_path / "y.npy")
    assert code == 1 and "has no column 'text'; found: a, b" in error and "give vectors as .npy" in error


def test_blocks_do_not_show(applied, rows, tmp_path, monkeypatch):
    x = write(tmp_path / "x.parquet", rows)
    applied(GATED, x, tmp_path / "small.parquet")
    monkeypatch.setattr(workflow, "BLOCK", 2**24)
    applied(GATED, x, tmp_path / "large.parquet")
    assert_rounded(read(tmp_path / "small.parquet"), read(tmp_path / "large.parquet"))


def test_the_screen_says_rows_share_and_displacement(run, rows, tmp_path):
    rs.save(rs.SteeringFunction({None: rs.Translation(np.full(D, 2.0))}, AlwaysGate()), tmp_path / "f")
    write(tmp_path / "x.npy", rows)
    shown = run("apply", tmp_path / "f", tmp_path / "x.npy", "--out", tmp_path / "y.npy").stdout
    assert "137 vectors of 5 features" in shown and "Steered share: 100.0%" in shown
    assert "Mean displacement: 4.47 over all vectors" in shown and len(shown.splitlines()) <= 6
