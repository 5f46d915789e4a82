"""Reports: records turned into tables, figures and one self-contained page."""

from repsurgery.report.describe import describe
from repsurgery.report.page import write_report
from repsurgery.report.study_page import write_study_report
from repsurgery.report.study_tables import result_tables
from repsurgery.report.tables import Table, certificate_table, certificates_table, outcomes_table
from repsurgery.report.toxicity_tables import toxicity_tables

__all__ = [
    "Table",
    "certificate_table",
    "certificates_table",
    "describe",
    "outcomes_table",
    "result_tables",
    "toxicity_tables",
    "write_report",
    "write_study_report",
]
