from importlib import metadata

import pytest

try:
    metadata.distribution("alt-profanity-check")
except metadata.PackageNotFoundError:
    pytest.skip("alt-profanity-check is not installed (extra repsurgery[scorers])", allow_module_level=True)


def test_the_quick_demo_reports_every_configuration(run, model_folder, tmp_path):
    result = run("demo", "--quick", "--model", model_folder, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    for method in ("mean", "mimic", "leace"):
        for scope in ("selective", "all"):
            assert f"{method} {scope}" in result.stdout
            assert f"{method} {scope}" in page
    assert str(tmp_path / "report" / "index.html") in result.stdout
    steps = [
        "Preparing",
        "texts: ",
        "model: ",
        "reading vectors",
        "fitting 6",
        "writing 4 prompts x 2 under 7",
        "judging",
    ]
    places = [result.stdout.index(step) for step in steps]
    assert places == sorted(places)
    assert places[-1] < result.stdout.index("Certificates") < result.stdout.index("What the model writes")
    # everything lies in the report's folder, and a second run takes its texts from there
    assert sorted(p.name for p in (tmp_path / "report").iterdir() if p.is_dir()) == ["work"]
    journals = {p: p.read_bytes() for p in (tmp_path / "report" / "work").rglob("*.jsonl")}
    again = run("demo", "--quick", "--model", model_folder, "--out", tmp_path / "report")
    assert again.exit_code == 0, again.output
    assert journals and {p: p.read_bytes() for p in (tmp_path / "report" / "work").rglob("*.jsonl")} == journals
