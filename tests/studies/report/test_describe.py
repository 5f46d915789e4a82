import pytest

from repsurgery.errors import ParameterError
from repsurgery.studies.common.report.describe import describe


def test_an_object_that_load_does_not_return_cannot_be_described():
    with pytest.raises(ParameterError, match=r"repsurgery\.load"):
        describe([1, 2])
