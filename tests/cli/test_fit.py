import re

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import hold_out, read_table
from repsurgery.errors import DataError
from repsurgery.studies.common.report.numbers import number
from repsurgery.workflows import held_out
from tests.cli.words import instead


@pytest.fixture
def fit(run, table, model_folder, tmp_path):
    """Return a function that fits a file by the command line and gives the file and the output."""

    def fit(*words, texts=table):
        out = tmp_path / "fitted.safetensors"
        columns = ("--text-column", "sentence", "--label-column", "tone")
        result = run("fit", texts, *columns, "--model", model_folder, "--target", "b", "--out", out, *words)
        assert result.exit_code == 0, result.output
        return rs.load(out), result.stdout

    return fit


@pytest.fixture
def parts(table):
    """Return the texts of the table that are fitted on by default, and those that are held out."""
    return hold_out(read_table(table, text="sentence", label="tone"))


def shown(output, measure):
    """Return the cells of a row of the certificate."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    return next(cells[1:] for cells in rows if cells[0] == measure)


def test_the_file_holds_what_the_library_would_have_fitted(fitted, parts, model_folder):
    four_fifths, _ = parts
    X = lm.extract(*lm.load(model_folder), four_fifths.texts, progress=False)
    expected = rs.MiMiC(source="a", target="b", shrinkage="oas").fit(X, four_fifths.labels)
    found = rs.load(fitted)
    assert isinstance(found, rs.SteeringFunction)
    np.testing.assert_allclose(found(X), expected.transform(X), atol=1e-5)
    assert found.certificate.method == "MiMiC"


def test_without_held_out_texts_the_file_is_fitted_on_all(fit, table, model_folder):
    texts = read_table(table, text="sentence", label="tone")
    X = lm.extract(*lm.load(model_folder), texts.texts, progress=False)
    expected = rs.MiMiC(target="b", shrinkage="oas").fit(X, texts.labels)
    found, output = fit("--shrinkage", "oas", "--held-out", 0)
    np.testing.assert_allclose(found(X), expected.transform(X), atol=1e-5)
    assert found.origin.data == texts.digest
    assert "none were held out" in output
    assert "held out │" not in output


@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize("method", ["mean", "mimic", "leace"])
def test_the_held_out_column_describes_the_saved_file(run, table, model_folder, tmp_path, parts, method, pooling):
    out = tmp_path / "f"
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder, "--out", out),
        *("--method", method, *(() if method == "leace" else ("--target", "b")), "--pooling", pooling),
    )
    assert result.exit_code == 0, result.output
    found, (four_fifths, away) = rs.load(out), parts
    assert found.origin.data == four_fifths.digest
    model, tokenizer = lm.load(model_folder)
    X, z, groups = rows_of(model, tokenizer, away, pooling)
    again = rs.certify(found, X, z, groups=groups)
    fitted, measured = shown(result.stdout, "mean gap")[:2]
    assert measured == number(again.by_source["a"].mean_gap)
    assert fitted == number(found.certificate.by_source["a"].mean_gap)
    assert fitted != measured
    if method != "leace":
        assert shown(result.stdout, "gate's Youden J") == ["–", number(again.youden)]
    pair = found.certificate.by_source["a"], again.by_source["a"]
    rows = [cell.split(" / ") for cell in shown(result.stdout, "rows (effective)")[:2]]
    assert [[int(text.split()[0]) for text in cell] for cell in rows] == [[p.rows_source, p.rows_target] for p in pair]
    # the counter-check: texts that the map was fitted on give other figures
    X, z, _ = rows_of(model, tokenizer, four_fifths, pooling)
    leaked = rs.certify(found, X, z)
    assert number(leaked.by_source["a"].mean_gap) != measured


def rows_of(model, tokenizer, texts, pooling):
    if pooling == "last":
        return lm.extract(model, tokenizer, texts.texts, progress=False), np.array(texts.labels), texts.texts
    parts = [
        model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[-1][0].detach().numpy()
        for text in texts.texts
    ]
    lengths = list(map(len, parts))
    return np.concatenate(parts), np.repeat(texts.labels, lengths), np.repeat(texts.texts, lengths)


def test_the_seed_draws_other_texts(fit, parts):
    first, again, other = (fit("--seed", seed)[0].origin.data for seed in (0, 0, 1))
    assert first == again == parts[0].digest
    assert other != first


def test_too_few_texts_to_hold_out_any_is_one_sentence(fit, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("\n".join(["sentence,tone", *(f"w{i} w{i + 1},{'ab'[i % 2]}" for i in range(12))]))
    found, output = fit("--method", "mean", texts=few)
    assert "The map is fitted on all texts" in output
    assert "6 distinct texts labelled 'a'" in output
    assert found.certificate.by_source["a"].rows_source == 6
    # with one share more there are enough
    assert "measured on 4 that were held out" in fit("--method", "mean", "--held-out", 0.3, texts=few)[1]


def test_only_too_few_held_out_texts_are_called_too_few(fit, tmp_path, monkeypatch):
    few, some = tmp_path / "few.csv", tmp_path / "some.csv"
    for path, count in ((few, 12), (some, 60)):
        path.write_text("\n".join(["sentence,tone", *(f"w{i} w{i % 7},{'ab'[i % 2]}" for i in range(count))]))

    def broken(*_, **__):
        raise DataError("These rows are broken.")

    monkeypatch.setattr(rs.SteeringFunction, "verify", broken)
    assert "too few to tell" in fit("--method", "mean", "--held-out", 0.3, texts=few)[1]
    with pytest.raises(AssertionError, match="These rows are broken"):
        fit("--method", "mean", "--held-out", 0.3, texts=some)


def test_a_rare_label_that_is_not_steered_does_not_matter(fit, table):
    table.write_text(table.read_text() + "\nw3 w4,c")
    assert "were held out, which" in fit("--method", "mean", "--source", "a")[1]
    assert "1 distinct texts labelled 'c'" in fit("--method", "mean", "--held-out", 0.2)[1]


@pytest.mark.parametrize("share", [1, -0.1, 1.5])
def test_a_share_that_leaves_nothing_is_refused(run, table, tmp_path, share):
    words = ("--text-column", "sentence", "--label-column", "tone", "--target", "b", "--held-out", share)
    result = run("fit", table, *words, "--out", tmp_path / "f")
    assert result.exit_code == 1
    assert "--held-out is" in result.stderr
    assert "less than 1" in result.stderr


def test_few_texts_do_not_support_a_covariance_and_many_do(fit, tmp_path):
    said = "do not support a covariance"
    few, many = (tmp_path / name for name in ("few.csv", "many.csv"))
    for path, count in ((few, 30), (many, 400)):
        lines = [f"w{i % 20} w{i // 20} w{20 * (i % 2) + i % 17},{'ab'[i % 2]}" for i in range(count)]
        path.write_text("\n".join(["sentence,tone", *lines]))
    found, output = fit(texts=few)
    assert f"12 texts labelled a in 16 dimensions {said}: pooled shrinkage, alpha = 1." in output
    assert found.certificate.gain == 1
    assert said not in fit(texts=many)[1]
    assert f"Warning: 12 texts labelled a in 16 dimensions {said}" in fit("--shrinkage", "none", texts=few)[1]
    assert "Warning" not in fit("--shrinkage", "none", texts=many)[1]
    # mean matching needs no covariance
    assert said not in fit("--method", "mean", texts=few)[1]


def test_moments_have_no_texts_to_hold_out(run, tmp_path):
    rng = np.random.default_rng(0)
    rs.ClassMoments.of(rng.normal(size=(40, 3)), np.repeat(["a", "b"], 20)).save(tmp_path / "m")
    result = run("fit", "--moments", tmp_path / "m", "--target", "b", "--out", tmp_path / "f")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("A file of moments holds no texts") == 1
    assert "fitted" not in result.stdout.split("Measured")[0]


def test_states_that_do_not_fit_into_memory_are_drawn_from_every_label(monkeypatch, fit, parts):
    _, away = parts
    monkeypatch.setattr(held_out, "LARGEST", 16 * 20)
    _, output = fit("--pooling", "all", "--method", "mean")
    count = int(re.search(rf"measured on (\d+) of the {len(away)} texts that were held out", output)[1])
    assert 4 <= count < len(away)
    source, target = (int(cell.split()[0]) for cell in shown(output, "rows (effective)")[1].split(" / "))
    assert source + target <= 20
    assert min(source, target) >= 2


def test_the_certificate_is_printed(run, table, model_folder, tmp_path):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *(
            "--method",
            "mean",
            "--source",
            "a",
            "--target",
            "b",
            "--gate",
            "always",
            "--site",
            "layers.0",
            "--out",
            tmp_path / "f",
        ),
    )
    assert result.exit_code == 0, result.output
    assert "MeanMatching claims equal means" in result.stdout
    assert "a → b" in result.stdout
    assert "layers.0" in result.stdout


@pytest.mark.parametrize("pooling", ["mean", "all"])
@pytest.mark.parametrize("method", ["leace", "barycenter"])
def test_other_methods_and_poolings_fit_too(run, table, model_folder, tmp_path, method, pooling):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", method, "--pooling", pooling, "--out", tmp_path / "f", "--keep-moments"),
    )
    assert result.exit_code == 0, result.output
    assert type(rs.load(tmp_path / "f")).__name__.lower().startswith(method)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--method", "magic"], 2, "magic"),
        (["--shrinkage", "magic"], 2, "magic"),
        (["--source", "c"], 1, "the labels of the table are a, b"),
        (["--method", "leace", "--source", "a"], 2, "LEACE takes no --source; it takes --ridge, --shrinkage."),
        (["--target", "b", "--site", "layers.9"], 1, "layers.9"),
        (["--text-column", "missing"], 1, "has no column 'missing'"),
        (["--target", "b", "--model", "no/such/folder/at/all"], 1, "There is no folder"),
    ],
)
def test_a_wrong_word_is_one_line_and_no_traceback(run, table, model_folder, tmp_path, options, code, words):
    base = ["--text-column", "sentence", "--label-column", "tone", "--model", model_folder, "--out", tmp_path / "f"]
    result = run("fit", table, *instead(base, *options))
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert code == 2 or len(result.stderr.strip().splitlines()) == 1 + result.stderr.count("Loading weights")
    assert not (tmp_path / "f").exists()


def test_debug_lets_the_error_through(run, tmp_path):
    result = run("--debug", "fit", tmp_path / "none.csv", "--out", tmp_path / "f")
    assert isinstance(result.exception, rs.errors.DataError)


@pytest.mark.parametrize(
    ("words", "shrinkage", "alpha"),
    [
        ([], "pooled", "auto"),
        (["--alpha", "0.5"], "pooled", 0.5),
        (["--shrinkage", "pooled", "--alpha", "auto"], "pooled", "auto"),
        (["--shrinkage", "oas"], "oas", None),
        (["--method", "mean"], "none", None),
    ],
)
def test_mimic_on_texts_is_pooled_unless_another_shrinkage_is_named(
    run, table, model_folder, tmp_path, words, shrinkage, alpha
):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--target", "b", "--out", tmp_path / "f", *words),
    )
    assert result.exit_code == 0, result.output
    certificate = rs.load(tmp_path / "f").certificate
    assert (certificate.shrinkage, certificate.alpha) == (shrinkage, alpha)
    assert ("pooled, alpha" in result.stdout) == (shrinkage == "pooled")


@pytest.mark.parametrize("words", [["--alpha", "2"], ["--alpha", "much"], ["--shrinkage", "oas", "--alpha", "0.5"]])
def test_a_wrong_alpha_stops_before_the_model_is_read(run, table, tmp_path, words):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", tmp_path / "absent"),
        *("--target", "b", "--out", tmp_path / "f", *words),
    )
    contradictory = "--shrinkage" in words
    assert result.exit_code == (2 if contradictory else 1) and "alpha is" in result.output
    assert not (tmp_path / "f").exists()


def test_the_embedded_texts_are_named_as_in_tune(run, model_folder, tmp_path, monkeypatch):
    """They come after a file of that name, and have columns of their own."""
    monkeypatch.chdir(tmp_path)
    words = ("--source", "rude", "--target", "courteous", "--model", model_folder, "--max-length", 8, "--out", "f")
    result = run("fit", "courtesy", "--method", "mean", *words, "--json")
    assert result.exit_code == 0, result.output
    assert rs.load("f").classes == ("courteous", "rude")
    named = run("fit", "courtesy", "--text-column", "sentence", *words)
    assert named.exit_code == 2 and "Name none" in named.stderr
    (tmp_path / "courtesy").write_text("not a table")
    assert run("fit", "courtesy", *words).exit_code == 1
