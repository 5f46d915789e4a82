"""The published figures are complete, and the paper's own claims can be read off them."""

from repsurgery.studies.common.report.published import published


def test_every_cell_of_the_printed_tables_is_held():
    figures = published()
    assert {model: len(cells) for model, cells in figures.bios.items()} == {"BERT-base": 5, "GPT-2": 5, "Llama2-7b": 4}
    assert [round(0.5 + 0.05 * i, 2) for i in range(10)] == list(figures.dialect)
    assert all(set(cells) == {"base", "mean", "mimic"} for cells in figures.dialect.values())
    assert list(figures.neighbours) == [1, 4, 8, 16, 32, 64, 128]
    assert set(figures.models.values()) == set(figures.bios)


def test_printed_values_have_three_digits():
    figures = published()
    cells = [cell for group in (figures.bios, figures.dialect) for by in group.values() for cell in by.values()]
    values = [printed.value for cell in cells for printed in cell.values()]
    values += [share for shares in figures.neighbours.values() for share in shares.values()]
    assert len(values) == 2 * 14 + 2 * 30 + 21
    assert all(value == round(value, 3) and 0 < value < 1 for value in values)


def test_mimic_has_the_lowest_published_gap_of_every_model():
    for cells in published().bios.values():
        assert min(cells, key=lambda method: cells[method]["tpr_gap"].value) == "mimic"


def test_neighbours_fall_from_base_over_mean_to_mimic():
    for shares in published().neighbours.values():
        assert shares["base"] > shares["mean"] > shares["mimic"]


def test_only_the_accuracies_of_llama_are_corrected():
    corrected = {
        (model, measure)
        for model, cells in published().bios.items()
        for cell in cells.values()
        for measure, printed in cell.items()
        if printed.corrected is not None
    }
    assert corrected == {("Llama2-7b", "accuracy")}
    base = published().bios["Llama2-7b"]["base"]["accuracy"]
    assert (base.value, base.taken) == (0.786, 0.789)
    # as printed the base would be less accurate than after erasure; corrected it is not
    leace = published().bios["Llama2-7b"]["leace"]["accuracy"]
    assert base.value < leace.value
    assert base.taken > leace.taken


def test_every_row_of_the_toxicity_table_is_held():
    rows = {row.name: row for row in published().toxicity}
    assert len(rows) == 11
    assert next(iter(rows)) == "GPT-2 large"
    ours = [(row.method, row.scope) for row in rows.values() if row.method is not None]
    assert ours == [("base", "none"), ("mean", "selective"), ("mimic", "selective"), ("mean", "all"), ("mimic", "all")]
    rivals = [row.rival for row in rows.values() if row.method is None]
    assert rivals == ["dapt", "gedi", "pplm", "uddia", "dexperts", "goodtriever"]
    # WikiText was read by the paper's own models alone
    assert all((row.word_perplexity is None) == (row.method is None) for row in rows.values())
    shares = [x for r in rows.values() for x in (r.expected_max_toxicity, r.toxicity_probability, *r.distinct)]
    assert all(value == round(value, 2) and 0 < value < 1 for value in shares)
    base, mimic = rows["GPT-2 large"], rows["MiMiC, selective"]
    assert round(mimic.expected_max_toxicity / base.expected_max_toxicity - 1, 3) == -0.256
    assert round(mimic.toxicity_probability / base.toxicity_probability - 1, 2) == -0.64
