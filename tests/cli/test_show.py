import io

import pytest
from rich.console import Console

from repsurgery.cli.show import show_table
from repsurgery.studies.toxicity.report.short_tables import certificates_table, outcomes_table
from tests.studies.report.records import small_record


@pytest.mark.parametrize("width", [60, 80, 120, 250])
@pytest.mark.parametrize("build", [outcomes_table, certificates_table])
def test_no_cell_is_cut_whatever_the_width(width, build):
    table = build(small_record())
    console = Console(width=width, file=io.StringIO())
    show_table(table, console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for row in table.rows:
        assert all(cell in shown for cell in row)
