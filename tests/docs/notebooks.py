"""Execute the notebooks of ``examples/`` and store their outputs: `make notebooks`, or this module as a script.

``python -m tests.docs.notebooks NAME`` executes one. Outputs are stored without what belongs to one machine: times,
paths, versions and messages on standard error.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
VARIES = "varies"
"""The tag of a cell whose output may differ between machines, such as texts that a model writes."""

_NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|[-+−]?\.\d+")
_DIGEST = re.compile(r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b")


def execute(path):
    """Return the notebook with the outputs of the current code; it is executed in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    return clean(notebook)


def clean(notebook):
    """Remove what belongs to one machine or one run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                output.pop("metadata", None) if output.output_type == "stream" else output.update(metadata={})
    return notebook


def _joined(outputs):
    """Return the outputs with lines that were printed one after another as one output, however they arrived."""
    joined = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def shown(cell):
    """Return the text that a cell shows, without pictures and HTML."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        # the text beside a picture or a table only names its class
        texts.append(output.get("text", "" if data.keys() & {"image/png", "text/html"} else data.get("text/plain", "")))
    return "".join(texts)


def alike(old, new, *, tolerance=0.02):
    """Return whether two texts are equal, apart from digests, and numbers within ``tolerance``."""
    old, new = _DIGEST.sub("#", old), _DIGEST.sub("#", new)
    if _NUMBER.sub("0", old) != _NUMBER.sub("0", new):
        return False
    pairs = zip(_numbers(old), _numbers(new), strict=True)
    return all(abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) for a, b in pairs)


def _numbers(text):
    return [float(number.replace("−", "-").replace(",", "")) for number in _NUMBER.findall(text)]


def main():
    names = sys.argv[1:]
    for path in NOTEBOOKS:
        if not names or path.name in names or path.stem in names:
            nbformat.write(execute(path), path)
            print(f"executed {path.relative_to(ROOT)}")  # noqa: T201 - the output of this command


if __name__ == "__main__":
    main()
