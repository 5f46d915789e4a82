"""Page and Markdown show the same, need nothing else, and read no text of a record as markup."""

import re
from dataclasses import replace

import pytest

from repsurgery.errors import RecordError
from repsurgery.studies.common.report.rendering import markdown_item, markdown_text
from repsurgery.studies.fairness.record import MethodResult
from repsurgery.studies.page import write_study_report
from tests.studies.report.checker import assert_self_contained, assert_well_formed
from tests.studies.report.studies import EVIL, bios_record, dialect_record, record_of, setting_of

pytest.importorskip("matplotlib", reason="figures need the extra repsurgery[report]")


def evil_record():
    record = bios_record(spec={"preset": EVIL}, encoder={"name": EVIL}, notes=(EVIL,), created=EVIL)
    first = record.settings[0]
    results = tuple(replace(r, method=EVIL if r.method == "trace" else r.method) for r in first.methods)
    results = tuple(replace(r, gaps={EVIL: 0.5}, facts={EVIL: EVIL}) for r in results)
    data = {**record.data, "name": EVIL, "cautions": [EVIL], "counts": {EVIL: {EVIL: 1}}}
    return replace(record, data=data, settings=(replace(first, methods=results),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_study_report([bios_record(), dialect_record(), evil_record()], folder)
    return folder


def test_the_page_is_well_formed_and_every_image_and_heading_cell_is_named(parsed):
    assert_well_formed(parsed)


def test_the_page_needs_nothing_from_elsewhere(parsed, html):
    assert_self_contained(parsed, html)


def test_every_entry_of_the_contents_leads_to_a_section(parsed, html):
    anchors = [link[1:] for link in parsed.links if link.startswith("#")]
    assert anchors == ["study-1", "study-2", "study-3"]
    assert all(f'id="{anchor}"' in html for anchor in anchors)


def test_text_of_a_record_is_shown_and_never_interpreted(parsed, html, text):
    assert "<script" not in html
    assert any(EVIL in words for words in parsed.text)
    assert "<" not in text
    assert r"[c\](http" in text
    assert not re.search(r"(?<!\\)\]\(http", text)
    assert EVIL not in text


def test_markdown_tables_keep_their_columns_whatever_the_text(text):
    bars = re.compile(r"(?<!\\)\|")
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(blocks) > 20
    for lines in blocks:
        assert len({len(bars.findall(line)) for line in lines}) == 1, lines[0]


def test_escaping_leaves_plain_words_and_intervals_alone():
    assert markdown_text(".155 [.150, .161] MiMiC − base") == ".155 [.150, .161] MiMiC − base"
    assert markdown_text("a|b\n_c_ [d](e) <f>") == r"a\|b \_c\_ [d\](e) &lt;f&gt;"
    assert [markdown_item(line) for line in ("# no heading", "1. no list", "plain")] == [
        r"- \# no heading",
        r"- 1\. no list",
        "- plain",
    ]


def test_page_and_markdown_show_the_same_cells(parsed, text):
    cells = {word for word in parsed.text if re.fullmatch(r"[+−]?\.\d{3} \[.*\]", word)}
    assert len(cells) > 50
    assert all(f"| {cell} |" in text for cell in cells)


def test_cautions_stand_before_every_number_of_their_study(html, text):
    for whole in (html, text):
        study = whole[whole.rindex("2. dialect") :]
        assert study.index("Dialect is confounded") < study.index("TPR gap RMS by ratio")


def test_every_figure_of_the_markdown_lies_beside_it(folder, text):
    files = re.findall(r"\]\((.*?\.svg)\)", text)
    assert set(files) == {path.name for path in folder.glob("*.svg")}
    assert {"study-1-neighbours.svg", "study-1-cosine-1.svg", "study-2-tpr-gap.svg", "study-2-accuracy.svg"} <= set(
        files
    )
    for file in files:
        drawing = (folder / file).read_text(encoding="utf-8")
        assert drawing.startswith("<svg")
        assert "<script" not in drawing
        links = re.findall(r'href="(.*?)"', drawing)
        assert all(link.startswith(("#", "data:")) for link in links)


def test_equal_records_give_equal_bytes_and_others_do_not(folder, tmp_path):
    write_study_report([bios_record(), dialect_record(), evil_record()], tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all((tmp_path / name).read_bytes() == (folder / name).read_bytes() for name in names)
    write_study_report([bios_record(created="2027-01-01"), dialect_record(), evil_record()], tmp_path)
    assert (tmp_path / "index.html").read_bytes() != (folder / "index.html").read_bytes()


def test_a_study_without_a_task_needs_no_figure(tmp_path):
    bare = record_of([setting_of([MethodResult("base")])], data={"name": "gap"}, seconds={})
    path = write_study_report([bare], tmp_path / "new")
    assert path == tmp_path / "new" / "index.html"
    assert sorted(p.name for p in path.parent.iterdir()) == ["index.html", "report.md"]
    assert "Contents" not in path.read_text(encoding="utf-8")


def test_without_a_record_nothing_is_written(tmp_path):
    with pytest.raises(RecordError, match="repsurgery reproduce"):
        write_study_report([], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_studies_of_one_kind_are_distinguished_by_the_options_that_differ(tmp_path):
    plain = {"preset": "paper", "fit_weights": "rows", "seed": 0, "ratios": [0.5]}
    records = [bios_record(spec=plain), bios_record(spec={**plain, "fit_weights": "balanced"})]
    text = write_study_report(records, tmp_path).read_text()
    assert "(fit_weights rows)" in text and "(fit_weights balanced)" in text and "seed 0)" not in text
    alone = write_study_report(records[:1], tmp_path / "alone").read_text()
    assert "(fit_weights" not in alone
