"""The committed table names the families and tests there are; that they hold is what `test_conformance` tests."""

from tests.lm import test_conformance as suite
from tests.lm.conformance import COLUMNS, DECODING, TABLE, table
from tests.lm.tiny_models import DECODERS


def test_the_table_is_that_of_the_tests():
    def expected(family, column):
        encoder = family not in DECODERS
        return "–" if encoder and (column in DECODING or column == "left = right padding") else "yes"

    assert TABLE.read_text() == table(expected)


def test_every_conformance_test_has_a_column():
    named = {test.__name__ for tests in COLUMNS.values() for test, _ in tests}
    written = {name for name in vars(suite) if name.startswith("test_")}
    assert written - named == {"test_the_named_writer_computes_what_the_site_holds"}  # in the table of folds
