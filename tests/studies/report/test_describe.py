import pytest

from repsurgery.errors import ParameterError
from repsurgery.studies.common.report.describe import describe


def test_what_is_no_file_of_ours_cannot_be_described():
    with pytest.raises(ParameterError, match=r"repsurgery\.load"):
        describe([1, 2])
