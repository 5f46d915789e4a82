"""Page and Markdown of toxicity studies show the same; generated text lies behind a warning and is never markup."""

import re
from dataclasses import replace

import pytest

from repsurgery.studies.common.report.rendering import markdown_text, render
from repsurgery.studies.page import write_study_report
from repsurgery.studies.toxicity.record import Configured, Example
from repsurgery.studies.toxicity.report.tables import toxicity_tables
from tests.studies.report.checker import assert_self_contained, assert_well_formed
from tests.studies.report.studies import bios_record
from tests.studies.report.toxicity_records import EVIL, main_configurations, toxicity_record

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")

WARNING = "Generated text may be offensive: unedited model output."


def evil_record():
    record = toxicity_record(spec={"preset": EVIL}, model={"name": EVIL}, notes=(EVIL,), created=EVIL)
    held = tuple(
        replace(c, name=EVIL if c.name == "leace, all" else c.name, facts={EVIL: EVIL}) for c in record.configurations
    )
    data = {**record.data, "name": EVIL, "cautions": [EVIL], "counts": {EVIL: 1}}
    scorers = {"linear": {"name": EVIL, "version": EVIL}, "bilstm": {EVIL: EVIL}}
    return replace(record, configurations=held, data=data, scorers=scorers, examples=(Example(EVIL, {EVIL: EVIL}),))


def written(folder):
    write_study_report([toxicity_record(), bios_record(), evil_record()], folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("toxicity"))


def test_the_page_is_well_formed_and_every_image_and_heading_cell_is_named(parsed):
    assert_well_formed(parsed)


def test_the_page_needs_nothing_from_elsewhere(parsed, html):
    assert_self_contained(parsed, html)


def test_fairness_comes_first_and_each_kind_has_its_summary(html, text):
    assert "<h1>Fairness and toxicity studies" in html
    for whole in (html, text):
        assert whole.index("TPR gap: base") < whole.index("Summary of toxicity") < whole.index("1. bios")
        assert whole.index("1. bios") < whole.index("2. toxicity: jigsaw") < whole.rindex("3. toxicity")


def test_text_of_a_record_is_shown_and_never_interpreted(parsed, html, text):
    assert "<script" not in html
    assert any(EVIL in words for words in parsed.text)
    assert set(re.findall(r"<[^>]*>", text)) == {"<details>", "</details>", "<summary>", "</summary>"}
    assert not re.search(r"(?<!\\)\]\(http", text)
    assert EVIL not in text


def test_markdown_tables_keep_their_columns_whatever_the_text(text):
    bars = re.compile(r"(?<!\\)\|")
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(blocks) > 40
    for lines in blocks:
        assert len({len(bars.findall(line)) for line in lines}) == 1, lines[0]


def test_page_and_markdown_show_every_cell_of_the_tables(parsed, text):
    shown = set(parsed.text)
    for table in toxicity_tables(toxicity_record()):
        for row in (table.headings, *table.rows):
            assert set(row) <= shown
            assert "| " + " | ".join(map(markdown_text, row)) + " |" in text


def test_generated_texts_lie_behind_a_closed_warning(html, text):
    for whole in (html, text):
        for prompt in ("The committee said", "قال الرجل"):
            before = whole[: whole.index(prompt)]
            assert before.rindex("<details>") > before.rfind("</details>")
            assert WARNING in before[before.rindex("<summary>") : before.rindex("</summary>")]
    assert "<details open" not in html + text


def test_texts_of_any_script_survive_and_control_characters_do_not(html, text):
    for whole in (html, text):
        assert "صعب" in whole and "😀" in whole
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", whole)
        assert "��" in whole and "(nothing)" in whole
    assert html.count('<p class="prompt" dir="auto">') == 3


def test_an_example_keeps_its_lines_on_the_page_and_its_cell_in_markdown():
    examples = [Example("a\nb", {"base": "one\ntwo | three"})]
    assert "one\ntwo | three" in render("examples.html.jinja", examples=examples)
    assert r"| base | one two \| three |" in render("examples.md.jinja", examples=examples).splitlines()


def test_every_figure_of_the_markdown_lies_beside_it(folder, text):
    files = re.findall(r"\]\((.*?\.svg)\)", text)
    assert set(files) == {path.name for path in folder.glob("*.svg")}
    names = {f"study-2-{name}.svg" for name in ("tradeoff-1", "tradeoff-2", "strengths", "shifts")}
    assert names <= set(files)


def test_equal_records_give_equal_bytes_and_others_do_not(folder, tmp_path):
    written(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in names)
    one, other = (
        write_study_report([toxicity_record(main_configurations(), created=day)], tmp_path / day).read_bytes()
        for day in ("2026-01-01", "2026-01-02")
    )
    assert one != other


def test_a_study_of_nothing_but_the_base_needs_no_figure_and_no_example(tmp_path):
    bare = toxicity_record([Configured("base")], examples=(), scorers=(), wikitext={}, seconds={})
    path = write_study_report([bare], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.html", "report.md"]
    page = path.read_text(encoding="utf-8")
    assert "<h1>Toxicity studies" in page and "Example generations" not in page
