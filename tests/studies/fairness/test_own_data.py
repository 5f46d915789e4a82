"""Own tables of a fairness study: small, with holes, with rare classes, with other names and more than two groups."""

import numpy as np
import pytest

from repsurgery.errors import DataError, LabelError
from repsurgery.studies.fairness import make_spec, run_study, spec_toml
from repsurgery.studies.fairness.own_data import load_own
from repsurgery.studies.fairness.rows import SPLITS, splits_with_every_concept
from tests.studies.fairness.test_run import SMALL, rows, table

NAMED = {"label": "job", "concept": "gender"}


def own(path, experiment="bios", **options):
    return load_own(make_spec(experiment, data=str(path), **{**NAMED, **options}))


def renamed(found, **values):
    return [
        {"bio": row["text"], "job": row["job"], "gender": values.get(row["gender"], row["gender"])} for row in found
    ]


def test_the_text_column_and_both_groups_are_found(tmp_path):
    spec, data = own(table(tmp_path / "t.csv", renamed(rows())))
    assert spec.text == "bio" and {spec.source, spec.target} == {"man", "woman"} and len(data) == 120
    assert any("'bio'" in caution for caution in data.cautions) and any("--set source=" in c for c in data.cautions)
    known = renamed(rows(), man="male", woman="female")
    assert spec.methods[-1] == "mimic-pooled" and any("--set methods=" in caution for caution in data.cautions)
    spec, data = own(table(tmp_path / "t.csv", known), text="bio", methods=("base", "mean"))
    assert spec.methods == ("base", "mean")
    assert (spec.source, spec.target) == ("male", "female") and data.cautions == ()


def test_holes_and_further_groups_are_left_out_and_said(tmp_path):
    found = renamed(rows())
    found[3]["gender"] = found[4]["gender"] = "other"
    found[5]["gender"], found[6]["bio"], found[7]["job"] = "", "", ""
    spec, data = own(table(tmp_path / "t.csv", found))
    assert len(data) == 115 and set(data.concepts) == {"man", "woman"} == {spec.source, spec.target}
    said = " ".join(data.cautions)
    assert "3 of 120 rows lack" in said and "two most frequent" in said and "left out: 2 (other)" in said


def test_a_stated_concept_is_never_replaced(tmp_path):
    found = renamed(rows())
    for row in found[:30]:
        row["gender"] = "other"
    path = table(tmp_path / "t.csv", found)
    spec, data = own(path, source="other")
    assert spec.source == "other" and set(data.concepts) == {"other", spec.target}
    with pytest.raises(LabelError, match=r"target is 'girl'.*--set source= and --set target="):
        own(path, target="girl")


def test_a_value_of_the_preset_that_was_stated_is_kept(tmp_path):
    path = table(tmp_path / "t.csv", renamed(rows(), man="M", woman="F"))
    assert {own(path)[0].source, own(path)[0].target} == {"M", "F"}
    for name in ("source", "target"):
        value = getattr(make_spec("bios"), name)
        with pytest.raises(LabelError, match=f"{name} is {value!r}, but the values of the column 'gender' are"):
            own(path, **{name: value})
    methods = make_spec("bios").methods
    assert own(path, methods=methods)[0].methods == methods != own(path)[0].methods
    with pytest.raises(DataError, match="no column 'text'"):
        own(path, text="text")
    with pytest.raises(ValueError, match="rows"):
        spec, _ = own(path, "dialect", per_cell=make_spec("dialect").per_cell)
        assert spec.per_cell == make_spec("dialect").per_cell
        raise ValueError("too few rows are refused where they are drawn")


def test_what_was_stated_is_in_the_file_that_repeats_the_study():
    """Otherwise the repetition would choose it again."""
    spec = make_spec("bios", source="male", seed=3)
    assert 'source = "male"' in spec_toml(spec) and "target" not in spec_toml(spec)
    assert "stated" not in spec_toml(spec) and "stated" not in spec.to_dict()


def test_a_missing_column_lists_the_columns(tmp_path):
    path = table(tmp_path / "t.csv", renamed(rows()))
    with pytest.raises(DataError, match=r"no column 'sex'; its columns are bio, job, gender.*--set concept="):
        own(path, concept="sex")
    with pytest.raises(DataError, match=r"no column 'concept'; its columns are bio, job, gender"):
        load_own(make_spec("bios", data=path, label="job"))
    with pytest.raises(LabelError, match="divide the values"):
        own(path, concept="bio")


def test_cells_follow_the_table(tmp_path):
    path = table(
        tmp_path / "t.csv", [*renamed(rows(400)), {"bio": "She sings here", "job": "singer", "gender": "woman"}]
    )
    spec, data = own(path, "dialect", ratios=[0.5, 0.8])
    assert set(data.labels) == {"nurse", "judge"} and 20 <= spec.per_cell < 200 and spec.positive in data.labels
    assert "per_cell" in " ".join(data.cautions) and "other labels" in " ".join(data.cautions)
    assert own(path, "dialect", ratios=[0.5], per_cell=30)[0].per_cell == 30
    with pytest.raises(DataError, match=r"too few rows.*--set 'ratios="):
        own(table(tmp_path / "few.csv", renamed(rows(40))), "dialect")
    with pytest.raises(LabelError, match="positive is 'cook'"):
        own(path, "dialect", positive="cook")


@pytest.mark.parametrize("seed", range(3))
def test_classes_with_one_row_and_small_tables_become_records(tmp_path, seed):
    lone = [{"text": f"He is alone as {job}.", "job": job, "gender": "man"} for job in ("poet", "pilot", "smith")]
    path = table(tmp_path / "t.csv", [*rows(40, seed), *lone])
    options = {**SMALL, "methods": ["mean", "leace", "mimic", "xian"], "neighbour_counts": [1, 64], "seed": seed}
    record = run_study(make_spec("bios", data=path, **options), work_dir=tmp_path / "work", progress=False)
    assert {"base", "mean", "leace", "mimic"} <= {m.method for m in record.settings[0].methods}
    assert "poet" in record.data["counts"] and any("poet" in note for note in record.notes)


def test_a_rare_concept_is_in_every_split():
    for n in (3, 4, 7):
        z = np.array(["a"] * 60 + ["b"] * n)
        for seed in range(20):
            names = splits_with_every_concept(z, seed)
            assert all(set(names[z == c]) == set(SPLITS) for c in ("a", "b"))
    assert len(set(splits_with_every_concept(np.array(["a"] * 9 + ["b"]), 0)[9:])) == 1
