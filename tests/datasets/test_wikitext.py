import sys
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from repsurgery.datasets import Documents, detokenise, load_wikitext2
from repsurgery.errors import DataError, ParameterError
from tests.datasets.real import real_folder

HARNESS = "the harness itself is the oracle, and needs the extra repsurgery[evaluation]"
LINES = [
    " = First = ",
    " ",
    " Text , with 1 @,@ 000 words . ",
    " = = Section = = ",
    " = = = Part = = = ",
    " Let a = b = c . ",
    " ",
    " = Second ( film ) = ",
    " More ° text .",
    "",
]
PAGES = ("\n".join(LINES[:7]), "\n".join(LINES[7:]))


def write(folder, text):
    (folder / "wiki.test.raw").write_bytes(text.encode())
    return folder


def test_documents_are_split_at_their_titles(tmp_path):
    found = load_wikitext2(write(tmp_path, "\n".join([" ", *LINES])))
    assert found.texts == PAGES
    assert (found.name, found.licence, len(found)) == ("wikitext2", "CC-BY-SA-3.0", 2)


def test_line_ends_of_another_system_change_nothing(tmp_path):
    assert load_wikitext2(write(tmp_path, "\r\n".join(LINES))).texts == PAGES


def test_the_folder_of_the_environment_comes_before_the_hub(tmp_path, monkeypatch):
    (tmp_path / "wikitext2_raw").mkdir()
    write(tmp_path / "wikitext2_raw", "\n".join(LINES))
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path))
    assert load_wikitext2().texts == PAGES


def test_the_hubs_table_becomes_the_original_file_again(tmp_path, monkeypatch):
    rows = [line + "\n" if line.strip() else "" for line in LINES[:-1]]
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "test.parquet")
    calls = []

    def hf_hub_download(repository, file, **options):
        calls.append((repository, file, options))
        return str(tmp_path / "test.parquet")

    monkeypatch.delenv("REPSURGERY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    found = load_wikitext2()
    assert found.texts == PAGES
    ((repository, file, options),) = calls
    assert (repository, options["repo_type"], len(options["revision"])) == ("Salesforce/wikitext", "dataset", 40)
    assert file.startswith("wikitext-2-raw-v1/test")


def test_a_failed_download_says_how_to_go_on(monkeypatch):
    def hf_hub_download(*_, **__):
        raise FileNotFoundError("no network")

    monkeypatch.delenv("REPSURGERY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    with pytest.raises(DataError, match=r"no network.*REPSURGERY_DATA"):
        load_wikitext2()


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*wiki\.test\.raw.*Salesforce/wikitext"):
        load_wikitext2(tmp_path)
    with pytest.raises(DataError, match="not a title line"):
        load_wikitext2(write(tmp_path, " A text . \n = = Section = = \n"))
    with pytest.raises(DataError, match=r"is empty\. Fetch it again"):
        load_wikitext2(write(tmp_path, " \n"))
    (tmp_path / "wiki.test.raw").write_bytes(b" = A = \n\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        load_wikitext2(tmp_path)


def test_documents_are_checked_and_counted():
    found = Documents(("a  b\n", "é"), name="two", source="here")
    assert (found.words, found.bytes) == (3 + 1, 5 + 2)
    assert found.first(1).texts == ("a  b\n",) and "first 1 of 2" in found.first(1).name
    assert found.first(2).digest == found.digest != found.first(1).digest
    for n in (0, 3, True, "1"):
        with pytest.raises(ParameterError, match="holds 2 documents"):
            found.first(n)
    with pytest.raises(DataError, match="holds no documents"):
        Documents((), name="none", source="here")
    with pytest.raises(DataError, match="document 1 is empty"):
        Documents(("a", " "), name="two", source="here")


def test_text_is_put_together_again():
    tokens = ' = = A = = \n He said , " it is 1 @.@ 5 ( or 2 ) ; the boys \' dog " . \n'
    assert detokenise(tokens) == ' == A ==\nHe said, "it is 1.5 (or 2); the boys\' dog".\n'


TRICKY = (
    " a /' 5/ b ' c ' d 's e = = = = f N g ° h { i } [ j ] ( k ( l ) ) \" m \" ? ! : ; , . \n n \n ",
    " the boys ' toys ' and 1 @-@ 2 @,@ 3 @.@ 4 ; = = x = = \n \n y",
    "no tokens at all",
)


def test_detokenising_is_the_harness_s():
    theirs = pytest.importorskip("lm_eval.tasks.wikitext.preprocess_wikitext", reason=HARNESS).wikitext_detokenizer
    for text in (*TRICKY, *PAGES):
        assert detokenise(text) == theirs({"page": text})
    assert any(detokenise(text) != text for text in TRICKY)


def test_words_and_bytes_are_the_harness_s():
    process = pytest.importorskip("lm_eval.tasks.wikitext.preprocess_wikitext", reason=HARNESS).process_results
    for text in (*TRICKY, *PAGES):
        theirs = process({"page": text}, [-1.0])
        found = Documents((text,), name="one", source="here")
        assert (found.words, found.bytes) == (theirs["word_perplexity"][1], theirs["byte_perplexity"][1])


def test_the_real_documents_read_as_in_the_harness():
    theirs = pytest.importorskip("lm_eval.tasks.wikitext.preprocess_wikitext", reason=HARNESS).wikitext_detokenizer
    found = load_wikitext2(real_folder("wikitext2_raw"))
    assert found.detokenised == tuple(theirs({"page": text}) for text in found.texts)


def test_the_real_documents():
    found = load_wikitext2(real_folder("wikitext2_raw"))
    assert len(found) == 62
    assert found.texts[0].startswith(" = Robert Boulter = \n") and "\r" not in found.texts[0]
    # the harness's rule takes two lines of a formula for titles
    assert sum(text.startswith(" = 1 ") for text in found.texts) == 2
    assert found.words == 241_211 + 2 * 62
