"""The table of docs/conformance.md: every family against every property of steering, written by running the tests.

``python -m tests.lm.conformance`` runs them and writes the table; `tests/lm/test_conformance_table.py` holds the
committed one to the tests there are.
"""

from pathlib import Path

import pytest

from tests.lm import test_conformance as suite
from tests.lm.tiny_models import DECODERS, FAMILIES

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"
COLUMNS = {
    "state = map(h)": [(suite.test_the_steered_state_is_the_map_of_the_state, suite.SITES)],
    "padding untouched": [
        (suite.test_padding_is_never_touched, ["layers.0", "layers.0.attn", "layers.0.mlp", "final"])
    ],
    "earlier layers bit-identical": [(suite.test_layers_before_the_site_are_bit_identical, [])],
    "model restored bit for bit": [(suite.test_the_model_is_bit_identical_afterwards, [])],
    "left = right padding": [(suite.test_left_and_right_padding_agree, [])],
    "batch = single": [(suite.test_batch_and_single_agree, [])],
    "cached = uncached": [
        (suite.test_cached_and_uncached_generation_agree, ["layers.0", "final"]),
        (suite.test_cached_and_uncached_scores_agree, []),
    ],
    "greedy loop by hand = generate": [(suite.test_a_greedy_loop_by_hand_equals_generate_under_steer, [])],
    "samples independent of batch": [(suite.test_samples_do_not_depend_on_their_batch, [])],
    "reading independent of padding and batch": [
        (suite.test_rows_do_not_depend_on_padding_side_or_batch_size, ["final", "layers.0", "layers.0.mlp"])
    ],
}
DECODING = {"cached = uncached", "greedy loop by hand = generate", "samples independent of batch"}
INTRODUCTION = """# Steering, family by family

Two-layer random models, one per family, steered by `lm.steer`; each column is a test of
`tests/lm/test_conformance.py`, with a counter-check that steering changes something. `python -m tests.lm.conformance`
runs them and writes this table. What folds where is in [conformance-fold.md](conformance-fold.md).

"""


def cell(family, column):
    """Return "yes" where every test of a column holds, "–" where it does not apply; else let the failure through."""
    if column in DECODING and family not in DECODERS:
        return "–"
    for test, sites in COLUMNS[column]:
        try:
            for arguments in [(site,) for site in sites] or [()]:
                test(family, *arguments)
        except pytest.skip.Exception:
            return "–"
    return "yes"


def table(cells):
    """Return the page for ``cells``, a function of family and column."""
    lines = ["| family | " + " | ".join(COLUMNS) + " |", "|" + " --- |" * (len(COLUMNS) + 1)]
    lines += [f"| {f} | " + " | ".join(cells(f, column) for column in COLUMNS) + " |" for f in FAMILIES]
    return INTRODUCTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(cell))
