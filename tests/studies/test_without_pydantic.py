"""Without pydantic the estimators of the fairness study work, and studies name the extra to install."""

import subprocess
import sys

import pytest


def run_without_pydantic(code):
    blocked = f"import sys; sys.modules['pydantic'] = None\n{code}"
    return subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)


def test_estimators_of_the_fairness_study_need_no_pydantic():
    code = (
        "from repsurgery.baselines import FairPostProcessing\n"
        "from repsurgery.classifiers import SoftmaxRegression, concept_classifier, released_logistic_regression\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_without_pydantic(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from repsurgery.experiments.toxicity import make_toxicity_spec",
        "from repsurgery.studies.fairness import make_spec",
        "from repsurgery.studies.records import read_record",
    ],
)
def test_a_missing_pydantic_is_named_with_its_extra(code):
    done = run_without_pydantic(code)
    assert "MissingExtraError" in done.stderr and "pip install 'repsurgery[report]'" in done.stderr
