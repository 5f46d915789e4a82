"""The page of a tuned steering: order, numbers, plain words about failures, and texts that are only shown."""

import json
import re

import pytest

from repsurgery.errors import RecordError
from repsurgery.studies.tuned.page import write_tune_report
from repsurgery.studies.tuned.plot import front_caption, plot_front
from repsurgery.studies.tuned.record import TUNE_FILES, read_tune_record
from tests.studies.report.checker import assert_self_contained, assert_well_formed, parse
from tests.studies.report.studies import EVIL
from tests.studies.tuned_record import CANDIDATES, COMPARED, PAIRS, effect, tune_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")
pytest.importorskip("jinja2", reason="pages need the extra repsurgery[report]")

HOSTILE = f'{EVIL} "quoted"\n--> ]]> </td> \x1b[31m \x00 \ud83d ünï ‮'


def html_of(folder, **changes):
    return write_tune_report(tune_record(**changes), folder).read_text(encoding="utf-8")


def words_of(html):
    """Return what a reader sees, without the style sheet, spaces collapsed."""
    parsed = parse(re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
    return " ".join(" ".join(parsed.text).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    write_tune_report(tune_record(), folder)
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(html):
    parsed = parse(html)
    assert_well_formed(parsed)
    assert_self_contained(parsed, html)
    assert "http" not in html


def test_the_folder_holds_the_named_files_and_the_record_is_left_to_the_command(folder):
    assert {file.name for file in folder.iterdir()} == set(TUNE_FILES) - {"record.json"}
    assert (folder / "front.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_effect_comes_first_and_the_sections_follow_in_order(html):
    seen = [html.index(text) for text in ("<h1>", "63 % → 24 %", "Price: ")]
    seen += [html.index(f'<section id="{name}">') for name in ("pairs", "front", "compared", "tried", "details")]
    titles = ("Judges", "Optimism of the search", "Certificate", "How to use the file", "Notes", "How it was made")
    seen += [html.index(f"<h3>{title}</h3>") for title in titles]
    assert seen == sorted(seen)
    assert "Read this first" not in html


def test_the_headline_states_effect_interval_test_judge_and_price(html):
    words = words_of(html)
    assert "smollm2-135m, steered from rude to courteous" in words
    assert "share of continuations judged rude: 63 % → 24 %" in words
    assert "−39 percentage points (95 % interval −45 to −33)" in words
    assert "p < .001 by the sign-flip test over 60 confirmation prompts" in words
    assert "judged by minilm-judge (AUC .97 [.95, .99] on 400 texts that it never saw)" in words
    assert "0.098 nats per token, KL(base ‖ steered), with a budget of 0.100" in words
    assert "WikiText perplexity 1.040 times that of the base, with a budget of 1.050" in words


def test_every_candidate_and_every_reason_is_listed(html):
    words = words_of(html)
    for candidate in (*CANDIDATES, *COMPARED):
        assert candidate["name"] in words
        assert candidate["reason"] in words
    assert "−42 [−49, −35]" in words  # of the search
    assert "−21 [−27, −15]" in words  # of the comparison
    assert "p = .240" in words
    assert "too optimistic by 3 percentage points" in words


def test_methods_are_compared_with_the_chosen_candidate_on_the_same_prompts(tmp_path):
    chosen = "chosen: natural-mean on-policy at final, all, 0.1 nats"
    confirmed = words_of(html_of(tmp_path))
    assert f"{chosen} 0.098 1.040 24 % −39 [−45, −33]" in confirmed
    assert "Measured on the same 60 confirmation prompts" in confirmed
    searched = words_of(html_of(tmp_path, compared=[CANDIDATES[4]]))
    assert f"{chosen} 0.097 20 % −42 [−49, −35]" in searched
    assert "Measured on the same search prompts" in searched


def test_small_shares_keep_a_decimal_and_means_are_fractions(tmp_path):
    small = words_of(html_of(tmp_path, base=0.064, steered=0.0125, effect=effect(-0.052, -0.08, -0.023, 0.004)))
    assert "6.4 % → 1.2 %" in small
    assert "−5.2 percentage points (95 % interval −8.0 to −2.3)" in small
    assert "p = .004" in small
    mean = words_of(html_of(tmp_path, measure="mean"))
    assert "mean judged probability of rude: .630 → .240" in mean
    assert "percentage points" not in mean


def test_a_missed_budget_is_stated_before_the_effect(tmp_path):
    budget, price = {"kl": 0.1, "wikitext": 1.05, "met": False}, {"kl": 0.134, "wikitext_ratio": 1.02}
    html = html_of(tmp_path, budget=budget, price=price)
    stated = "The budget was not met: the steering costs 0.134 nats per token (allowed: 0.100)."
    assert html.index(stated) < html.index("63 % → 24 %")
    html = html_of(tmp_path, budget=budget, price={"kl": 0.1, "wikitext_ratio": 1.0502})
    assert "WikiText perplexity is 1.0502 times that of the base (allowed: 1.05)." in html


def test_an_effect_that_may_be_chance_is_stated_first_and_a_clear_one_is_not(tmp_path):
    html = html_of(tmp_path, effect=effect(-0.04, -0.1, 0.02, 0.21))
    assert html.index("The effect is not significant (p = .210") < html.index("63 % → 24 %")
    assert "not significant" not in html_of(tmp_path, effect=effect(-0.04, -0.07, -0.01, 0.01))
    risen = html_of(tmp_path, base=0.24, steered=0.63, effect=effect(0.39, 0.33, 0.45, 0.0002))
    assert "did not have the intended effect: the share of continuations judged rude rose." in risen
    assert "was not tested" in html_of(tmp_path, effect={"value": -0.39})


def test_text_of_a_record_is_shown_and_never_interpreted(tmp_path):
    def spoiled(value):
        if isinstance(value, dict):
            return {key: spoiled(item) for key, item in value.items()}
        return (
            [spoiled(item) for item in value] if isinstance(value, list) else HOSTILE if value_is_text(value) else value
        )

    def value_is_text(value):
        return isinstance(value, str) and value not in ("tune", "share", "chosen", "raced", "stopped early", "all")

    html = html_of(tmp_path, **spoiled(tune_record()))
    assert "<script" not in html
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
    parsed = parse(html)
    assert_well_formed(parsed)
    assert_self_contained(parsed, html)
    assert sum(EVIL in words for words in parsed.text) > 20
    assert "<script" not in (tmp_path / "front.svg").read_text(encoding="utf-8")


def test_a_class_name_of_a_record_cannot_break_out_of_an_attribute(tmp_path):
    html = html_of(tmp_path, source='" onload="x', model="a'; rm -rf b #")
    assert ' onload="' not in html
    assert "--model &#39;a&#39;" in html  # quoted for the shell


def test_equal_records_give_equal_bytes(folder, tmp_path):
    write_tune_report(tune_record(), tmp_path)
    for name in ("index.html", "front.svg"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    write_tune_report(tune_record(steered=0.25), tmp_path)
    assert (tmp_path / "index.html").read_bytes() != (folder / "index.html").read_bytes()


def test_a_record_without_candidates_pairs_and_optional_values_has_a_page(tmp_path):
    keys = ("kind", "schema", "model", "source", "target", "measure", "base", "steered", "confirmation_prompts")
    least = {key: tune_record()[key] for key in keys}
    least |= {
        "judge": {"name": "minilm", "auc": None},
        "effect": {"value": -0.39, "low": None, "high": None, "p": None},
    }
    least |= {"price": {"kl": 0.098, "wikitext_ratio": None}, "budget": {"kl": 0.1, "wikitext": None, "met": True}}
    page = write_tune_report(least, tmp_path).read_text(encoding="utf-8")
    words = words_of(page)
    assert_well_formed(parse(page))
    assert "None" not in words and "nan" not in words
    assert "The record contains no texts." in words
    assert "No candidate was measured" in words
    assert "judged by minilm (its AUC on these labels was not measured)" in words
    assert not (tmp_path / "front.svg").exists()


def test_null_is_never_printed(tmp_path):
    bare = [dict.fromkeys(c) | {"name": c["name"], "status": c["status"]} for c in CANDIDATES]
    pairs = [{"prompt": "p", "base": None, "steered": "", "base_score": None, "steered_score": None}]
    nothing = dict.fromkeys(("chosen", "optimism", "seed", "digest", "version", "samples", "seconds"))
    words = words_of(html_of(tmp_path, candidates=bare, compared=bare[:1], pairs=pairs, **nothing))
    assert "None" not in words
    assert "(nothing)" in words


def test_the_figure_of_an_older_report_does_not_stay_beside_a_page_without_one(tmp_path):
    html_of(tmp_path)
    assert (tmp_path / "front.svg").exists()
    html_of(tmp_path, candidates=[])
    assert not (tmp_path / "front.svg").exists()


def test_at_most_twelve_pairs_are_shown(tmp_path):
    pairs = [{**PAIRS[0], "prompt": f"prompt number {i}."} for i in range(20)]
    words = words_of(html_of(tmp_path, pairs=pairs))
    assert "prompt number 11." in words
    assert "prompt number 12." not in words


def test_a_written_record_is_read_again(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(tune_record()), encoding="utf-8")
    assert read_tune_record(path) == tune_record()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("{", "is not a record"),
        ("[]", "Name the record.json that `repsurgery tune` wrote"),
        ('{"kind": "toxicity"}', "its kind is 'toxicity' and must be 'tune'"),
        ('{"kind": "tune", "schema": 9}', "has layout 9; this version of repsurgery reads layout 1"),
        ('{"kind": "tune", "schema": 1}', "budget must be an object. judge must be an object."),
    ],
)
def test_another_file_is_refused_in_plain_words(tmp_path, text, remedy):
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=re.escape(remedy)):
        read_tune_record(path)


def test_a_missing_record_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(RecordError, match="Run `repsurgery tune` first"):
        read_tune_record(tmp_path / "record.json")


def test_every_unsuitable_field_of_a_record_is_named(tmp_path):
    record = tune_record(base="much", measure="median", pairs={}, model=None)
    with pytest.raises(RecordError, match=r"model must.*base must.*pairs must.*measure is 'median'"):
        write_tune_report(record, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def written_in(figure):
    """Return the words of a figure; matplotlib draws them as outlines and names them in comments."""
    return set(re.findall(r"<!-- (.*?) -->", figure))


def test_the_figure_names_methods_budget_choice_and_confirmation():
    words = written_in(plot_front(tune_record()))
    assert {"budget", "base", "chosen", "confirmed: −39", "gated", "stopped early", "Pareto front"} <= words
    assert {"natural-mean", "natural", "mean", "mimic", "leace"} <= words


def test_the_figure_names_only_what_it_shows():
    record = tune_record(compared=[], candidates=[{**CANDIDATES[0], "status": "raced"}])
    words = written_in(plot_front(record))
    assert "natural-mean" in words
    assert not {"chosen", "stopped early", "mean", "mimic"} & words


def test_a_candidate_far_beyond_the_budget_does_not_stretch_the_scale_and_is_explained():
    near = [c for c in CANDIDATES if (c["measured_kl"] or 0) < 1]
    assert "Triangles" in front_caption(tune_record())
    assert "Triangles" not in front_caption(tune_record(candidates=near))
    ticks = {word for word in written_in(plot_front(tune_record())) if re.fullmatch(r"\d\.\d+", word)}
    assert max(map(float, ticks)) < 0.3
