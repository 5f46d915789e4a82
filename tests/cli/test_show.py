import io
from dataclasses import replace

import pytest
from rich.console import Console

from repsurgery.cli.show import show_table
from repsurgery.studies.fairness.report.tables import result_tables
from repsurgery.studies.toxicity.report.needs import needs_table
from repsurgery.studies.toxicity.report.short_tables import certificates_table, outcomes_table
from tests.studies.report.records import small_record
from tests.studies.report.rival_records import rival_record
from tests.studies.report.studies import dialect_record


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
        # an interval may stand below its value
        assert all(part in shown for cell in row for part in cell.replace(" [", "\n[").split("\n"))


def test_every_method_of_a_study_of_ratios_is_in_one_table_at_80_columns():
    """Intervals go below their values; only a table that is too wide even so is cut into pieces."""
    record = dialect_record()
    settings = []
    for setting in record.settings:
        mimic = setting.method("mimic")
        more = [replace(mimic, method=name) for name in ("leace", "mimic-pooled")]
        settings.append(replace(setting, methods=(*setting.methods, *more)))
    table = result_tables(replace(record, settings=tuple(settings)))[0]
    assert table.title == "TPR gap RMS by ratio" and len(table.headings) == 6
    shown = {}
    for width in (60, 80, 200):
        console = Console(width=width, file=io.StringIO())
        show_table(table, console)
        shown[width] = console.file.getvalue()
        assert max(map(len, shown[width].splitlines())) <= width
    assert shown[80].count("┏") == shown[200].count("┏") == 1 < shown[60].count("┏")
    for row in table.rows:
        assert all(part in shown[80] for cell in row for part in cell.replace(" [", "\n[").split("\n"))
        assert all(cell in shown[200] for cell in row)


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
