"""With own data, what was not stated follows the data, and what was stated is kept."""

import json

import pytest

import repsurgery.studies.toxicity.own_data as own_data
from repsurgery.datasets import LabelledTexts, Prompts
from repsurgery.errors import DataError, LabelError
from repsurgery.studies.toxicity import make_toxicity_spec
from repsurgery.studies.toxicity.data import choose_texts

FILES = {"data": "mine.csv", "prompts": "prompts.txt"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},the comment number {i},{'no' if i % 3 else 'Yes'}" for i in range(150)]
    (tmp_path / "mine.csv").write_text("id,comment,rude\n" + "\n".join(rows) + "\n")
    (tmp_path / "prompts.txt").write_text("".join(f"prompt {i}\n" for i in range(20)))
    return tmp_path


def chosen(**options):
    choices, texts = choose_texts(make_toxicity_spec(**{**FILES, **options}), None)
    return texts, choices.spec


def test_every_size_follows_the_data(here):
    texts, spec = chosen()
    assert (spec.text, spec.label, spec.source, spec.target) == ("comment", "rude", "Yes", "no")
    assert (spec.fit_rows, spec.held_out) == (40, 10)  # 50 of 150 affirm
    assert (spec.prompt_count, spec.prompt_toxicity) == (20, 0)
    assert {len(rows) for rows in texts.fitted.values()} == {40}
    assert {len(rows) for rows in texts.held_out.values()} == {10}
    sentence = choose_texts(make_toxicity_spec(**FILES), None)[0].sentence
    assert "\n" not in sentence
    for name in ("text", "label", "source", "fit_rows", "prompt_count"):
        assert f"{name}={getattr(spec, name)}" in sentence


@pytest.mark.parametrize("preset", ["local", "paper"])
def test_both_presets_fit(here, preset):
    texts, spec = chosen(preset=preset)
    assert {len(rows) for rows in texts.fitted.values()} == {40} and spec.held_out == 10


@pytest.mark.parametrize(
    "stated",
    [
        {"source": "no", "target": "Yes"},
        {"fit_rows": 12},
        {"held_out": 7},
        {"held_out": 0},
        {"fit_rows": 48},
        {"prompt_count": 5},
        {"text": "rude", "label": "comment", "source": "the comment number 0", "fit_rows": 1},
    ],
)
def test_what_was_stated_is_kept(here, stated):
    try:
        _, spec = chosen(**stated)
    except ValueError:
        assert stated.get("fit_rows") == 1  # what cannot be done is refused, and not changed
    else:
        assert {name: getattr(spec, name) for name in stated} == stated


@pytest.mark.parametrize("name", own_data.FOLLOWING)
@pytest.mark.parametrize("preset", ["local", "paper"])
def test_a_value_of_the_preset_that_was_stated_is_kept(here, name, preset):
    """Whatever the option: it keeps its value, or what cannot be done with it is refused by name."""
    value = getattr(make_toxicity_spec(preset), name)
    try:
        spec = chosen(preset=preset, **{name: value})[1]
    except ValueError as error:
        words = {"fit_rows": "texts", "held_out": "texts", "prompt_count": "prompts", "policy_prompts": "prompts"}
        assert words.get(name, name) in str(error) or repr(value) in str(error)
        return
    assert getattr(spec, name) == value
    assert make_toxicity_spec(preset, **{name: value}) == make_toxicity_spec(preset)


def test_the_other_of_two_labels_is_the_target(here):
    assert chosen(source="no")[1].target == "Yes"
    assert chosen(target="Yes")[1].source == "no"


@pytest.mark.parametrize(
    ("count", "evaluated", "training"), [(20, 10, 10), (21, 11, 10), (300, 150, 150), (900, 200, 500)]
)
def test_prompts_are_shared_between_evaluation_and_training(here, count, evaluated, training):
    (here / "prompts.txt").write_text("".join(f"prompt {i}\n" for i in range(count)))
    texts, spec = chosen(configurations=["mean all fit=on-policy"])
    assert (spec.prompt_count, spec.policy_prompts) == (evaluated, training)
    assert (len(texts.prompts), len(texts.training)) == (evaluated, training)
    assert not set(texts.prompts.texts) & set(texts.training.texts)
    assert chosen(configurations=["mean all fit=on-policy"], policy_prompts=8)[1].prompt_count == min(200, count - 8)
    assert chosen(configurations=["mean all"])[1].prompt_count == min(200, count)


def test_prompts_with_scores_keep_the_bound(here):
    lines = [json.dumps({"prompt": {"text": f"p {i}", "toxicity": i / 20}}) for i in range(20)]
    (here / "prompts.jsonl").write_text("\n".join(lines))
    texts, spec = chosen(prompts="prompts.jsonl")
    assert spec.prompt_toxicity == 0.5 and spec.prompt_count == 10
    assert all(score < 0.5 for score in texts.prompts.toxicity)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"source": "bad"}, LabelError, r"labels are Yes \(50\), no \(100\).*--set source=no --set target=Yes"),
        ({"text": "words"}, DataError, r"columns are id, comment, rude.*--set text="),
        ({"label": "tone"}, DataError, r"columns are id, comment, rude.*--set label="),
        ({"fit_rows": 60}, DataError, "60 to fit and 0 to hold out.*lower fit_rows"),
        ({"prompt_count": 30}, DataError, "has 20 prompts; 30 are needed.*--set prompt_count=20"),
        ({"prompts": "none.txt"}, DataError, "no file of prompts none.txt.*--set prompts="),
    ],
)
def test_what_cannot_be_chosen_is_asked_for(here, options, error, words):
    with pytest.raises(error, match=words):
        chosen(**options)


def test_labels_that_say_nothing_are_asked_for(here):
    (here / "mine.csv").write_text("text,label\n" + "a b,kind\nc d,rude\n" * 20)
    with pytest.raises(LabelError, match=r"kind \(20\), rude \(20\)"):
        chosen()
    (here / "mine.csv").write_text("text,label\n" + "a b,kind\n" * 20 + "c d,toxic\n")
    with pytest.raises(DataError, match="1 text labelled 'toxic'"):
        chosen()


def test_published_data_change_no_option(monkeypatch):
    spec = make_toxicity_spec()
    few = LabelledTexts(("a b", "c d"), ("toxic", "non-toxic"), name="jigsaw", source="part")
    choices = own_data.Choices(spec)
    choices.choose_columns()
    choices.choose_labels(few)
    choices.choose_rows(few)
    choices.choose_prompts(Prompts(("You",), name="rtp", source="part"))
    assert choices.spec == spec and choices.sentence == ""
    with pytest.raises(DataError, match="no hub"):
        choices.leave_out_wikitext(DataError("no hub"))


def test_stated_documents_are_never_left_out(here):
    for options in ({"wikitext_documents": 2}, {"configurations": ["tuned kl=0.1 wikitext=1.05"]}):
        with pytest.raises(DataError, match="no hub"):
            own_data.Choices(make_toxicity_spec(**FILES, **options)).leave_out_wikitext(DataError("no hub"))
    free = own_data.Choices(make_toxicity_spec(**FILES))
    free.leave_out_wikitext(DataError("no hub"))
    assert free.spec.wikitext_documents == 0 and "WikiText" in free.sentence
