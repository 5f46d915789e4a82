import os
import subprocess
import sys

import pytest

from repsurgery.errors import OutputError, ParameterError
from repsurgery.outputs import check_new_file, check_new_folder, check_output, check_output_folder


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text("text,label")
    return tmp_path / "t.csv"


def same(table):
    return table


def dotted(table):
    return table.parent / "." / "x" / ".." / table.name


def linked(table):
    (table.parent / "link").symlink_to(table)
    return table.parent / "link"


def hard_linked(table):
    os.link(table, table.parent / "hard")
    return table.parent / "hard"


@pytest.mark.parametrize("name", [same, dotted, linked, hard_linked])
def test_an_input_is_never_an_output(table, name):
    (table.parent / "x").mkdir()
    for out, source in ((name(table), table), (table, table.parent)):
        with pytest.raises(OutputError, match=r"one of the inputs .* would be overwritten\. Give another name"):
            check_output(out, inputs=[None, "no-such-name", source])
    assert table.read_text() == "text,label"
    (table.parent / "other").touch()
    assert check_output(table.parent / "other", inputs=[table]) == table.parent / "other"
    assert check_output(table.parent / "new", inputs=[table, table.parent]) == table.parent / "new"


def test_a_place_that_cannot_be_written_is_named(table):
    os.mkfifo(table.parent / "fifo")
    for out, told in (
        (table.parent, "is a folder; give the name of a file in it"),
        (table.parent / "none" / "f", "There is no folder .*none.* Create it first"),
        (table / "f", "There is no folder .*t.csv"),
        (table.parent / "fifo", "not a regular file"),
        ("/dev/null", "not a regular file"),
    ):
        with pytest.raises(OutputError, match=told):
            check_output(out)
    assert issubclass(OutputError, ParameterError)


WITHOUT_RIGHTS = """
import os, sys
from repsurgery.errors import OutputError
from repsurgery.outputs import check_output, check_output_folder
if os.geteuid() == 0:
    try:
        os.setuid(65534)  # the superuser may write everywhere
    except OSError:
        sys.exit("kept")
for check in (check_output, check_output_folder):
    try:
        check("/new")
    except OutputError as error:
        print(error)
"""


def test_a_folder_without_permission_is_named():
    done = subprocess.run([sys.executable, "-c", WITHOUT_RIGHTS], capture_output=True, text=True, check=False)
    if done.stderr == "kept\n":
        pytest.skip("the superuser cannot give up its rights here")
    assert done.stdout.splitlines() == ["The folder / is not writable (Permission denied). Name another folder."] * 2, (
        done.stderr
    )


def test_folders_are_made_later_and_files_are_no_folders(table):
    assert check_output_folder(table.parent / "a" / "b") == table.parent / "a" / "b"
    assert not (table.parent / "a").exists()
    for out in (table, table / "a" / "b"):
        with pytest.raises(OutputError, match=r"cannot be used as a folder: .*t\.csv is a file"):
            check_output_folder(out)


def test_an_input_in_a_folder_is_kept(table):
    folder = table.parent
    assert check_output_folder(folder, inputs=[table], writes=["*.html"]) == folder
    (folder / "sums-1").mkdir()
    (folder / "sums-1" / "x.npy").touch()
    for inputs, writes in (([table], ["t.*"]), ([folder / "sums-1" / "x.npy"], ["sums-*"]), ([folder], ["*.csv"])):
        with pytest.raises(OutputError, match=r"holds the input .*would be overwritten"):
            check_output_folder(folder, inputs=inputs, writes=writes)


def test_what_exists_is_not_new(table):
    folder = table.parent
    assert (
        check_new_file(folder / "new") == folder / "new" and check_new_folder(folder / "a" / "b") == folder / "a" / "b"
    )
    (folder / "empty").mkdir()
    assert check_new_folder(folder / "empty") == folder / "empty"
    (folder / "dangling").symlink_to(folder / "nowhere")
    for file in (table, folder / "dangling"):
        with pytest.raises(OutputError, match="exists already"):
            check_new_file(file)
    with pytest.raises(OutputError, match="is not empty"):
        check_new_folder(folder)
