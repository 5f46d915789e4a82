"""Reports and their tables; the import path of the studies' report modules that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.studies",
    submod_attrs={
        "common.report.describe": ["describe"],
        "common.report.tables": ["Table", "certificate_table"],
        "fairness.report.tables": ["result_tables"],
        "page": ["write_report", "write_study_report"],
        "toxicity.report.outcomes": ["certificates_table", "outcomes_table"],
        "toxicity.report.tables": ["toxicity_tables"],
    },
)
