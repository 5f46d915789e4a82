import io

import pytest
from rich.console import Console

from repsurgery.cli.show import show_table
from repsurgery.studies.toxicity.report.needs import needs_table
from repsurgery.studies.toxicity.report.short_tables import certificates_table, outcomes_table
from tests.studies.report.records import small_record
from tests.studies.report.rival_records import rival_record


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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_keys_leave_room_for_every_column(width):
    table = needs_table(rival_record())
    console = Console(width=width, file=io.StringIO())
    show_table(table, console)
    shown = console.file.getvalue()
    pieces = [line for line in shown.splitlines() if line.startswith("┏")]
    assert max(map(len, shown.splitlines())) <= width and len(pieces) > 1
    # no column is so narrow that it shows nothing, and every piece names its rows
    assert not any("━━━" not in column for line in pieces for column in line.strip("┏┓").split("┳"))
    assert all(shown.count(f"│ {name} ") == len(pieces) for name in ("gedi", "aura"))
