import pytest

from repsurgery.datasets import load_paradetox, load_paradetox_pairs
from repsurgery.datasets.paradetox import REPOSITORY, REVISION
from repsurgery.errors import DataError
from tests.datasets.hub_cache import run_offline, write_snapshot
from tests.datasets.real import real_folder

OWN = (
    "toxic\tneutral1\tneutral2\tneutral3\n"
    'what a fool !\tnot so wise !\t"unwise ,\nI ""think"""\t\n'
    "shut up\tshut up\tplease stop\tnot so wise !\n"
    "rubbish\t \t\t\n"
)
HUB = (
    "en_toxic_comment\ten_neutral_comment\n"
    "what a fool !\tnot so wise !\n"
    'what a fool !\t"unwise ,\nI ""think"""\n'
    "shut up\tshut up\nshut up\tplease stop\nshut up\tnot so wise !\n"
)
PAIRS = (
    ("what a fool !", "not so wise !"),
    ("what a fool !", 'unwise ,\nI "think"'),
    ("shut up", "shut up"),
    ("shut up", "please stop"),
    ("shut up", "not so wise !"),
)
TEXTS = ("what a fool !", "not so wise !", 'unwise ,\nI "think"', "shut up", "please stop")
LABELS = ("toxic", "non-toxic", "non-toxic", "toxic", "non-toxic")


@pytest.mark.parametrize(
    ("name", "content", "licence"), [("paradetox.tsv", OWN, "CC0-1.0"), ("train.tsv", HUB, "OpenRAIL++")]
)
def test_both_forms_give_the_same_sentences_and_pairs(tmp_path, name, content, licence):
    (tmp_path / name).write_text(content)
    found = load_paradetox(tmp_path)
    assert (found.texts, found.labels, found.licence) == (TEXTS, LABELS, licence)
    assert load_paradetox_pairs(tmp_path) == load_paradetox_pairs(tmp_path / name) == PAIRS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("toxic\tneutral1\na\tb\n", "has the columns toxic, neutral1; it needs toxic, neutral1, neutral2, .* or en_"),
        ("", "has the columns none"),
        ("en_toxic_comment\ten_neutral_comment\n\tb\na\t\n", r"holds no pairs.*github\.com/s-nlp"),
        ('en_toxic_comment\ten_neutral_comment\na\t"b\n', "line 2: .*Correct the quoting"),
        (b"en_toxic_comment\ten_neutral_comment\na\t\xe9\n", "line 2: byte 38 is not UTF-8"),
    ],
)
def test_an_unusable_file_says_what_to_do(tmp_path, content, message):
    (tmp_path / "t.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        load_paradetox(tmp_path / "t.tsv")


def test_nothing_to_read_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"holds no paradetox\.tsv or train\.tsv.*github\.com/s-nlp"):
        load_paradetox(tmp_path)
    with pytest.raises(DataError, match=r"no file .*none\.tsv"):
        load_paradetox_pairs(tmp_path / "none.tsv")


SCRIPT = f"""
from repsurgery.datasets import load_paradetox
found = load_paradetox()
assert (found.texts, found.labels) == {(TEXTS, LABELS)!r}, found
assert found.source == "Logacheva et al. 2022, {REPOSITORY} at {REVISION[:7]}", found.source
"""


def test_the_hubs_copy_is_read_from_its_cache_at_one_revision(tmp_path):
    pytest.importorskip("huggingface_hub", reason="the hub needs the extra repsurgery[data]")
    write_snapshot(tmp_path / "full", REPOSITORY, {"train.tsv": HUB}, commit=REVISION)
    done = run_offline(SCRIPT, tmp_path / "full")
    assert done.returncode == 0, done.stderr
    write_snapshot(tmp_path / "other", REPOSITORY, {"train.tsv": HUB})
    assert "could not be downloaded" in run_offline(SCRIPT, tmp_path / "other").stderr


def test_the_real_sentences():
    folder = real_folder("paradetox")
    pairs = load_paradetox_pairs(folder)
    assert (len(pairs), len({toxic for toxic, _ in pairs})) == (19743, 11927)
    assert load_paradetox(folder).counts == {"non-toxic": 19063, "toxic": 11927}
