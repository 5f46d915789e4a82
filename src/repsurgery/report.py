"""Reports and their tables: the public names, loaded from `repsurgery.studies` on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    "repsurgery.studies",
    submod_attrs={
        "common.report.certificates": ["certificate_table"],
        "common.report.describe": ["describe"],
        "common.report.tables": ["Table"],
        "fairness.report.tables": ["result_tables"],
        "page": ["write_report", "write_study_report"],
        "toxicity.report.short_tables": ["certificates_table", "outcomes_table"],
        "toxicity.report.tables": ["toxicity_tables"],
    },
)
