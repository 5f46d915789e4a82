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
    for method in ("MeanMatching", "MiMiC", "LEACE"):
        for scope in ("selective", "all"):
            assert f"{method}, {scope}" in result.stdout
            assert f"{method}, {scope}" in page
    assert str(tmp_path / "report" / "index.html") in result.stdout
    assert "7/7 LEACE, all" in result.stdout
