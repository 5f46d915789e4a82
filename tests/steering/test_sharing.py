"""Steerings in the hub's layout: what is shared loads as it was, and every failure says what to do."""

import json
import shutil

import pytest

import repsurgery as rs
from repsurgery.errors import FileFormatError, HubError, MissingExtraError, ParameterError
from repsurgery.steering.pretrained import CARD, CONFIG, STEERING
from tests.certificates.test_outcome import PLACE, outcome
from tests.steering.hub_stand_in import READ, WRITE, Repository, running_hub, use
from tests.strategies import make_concept

# huggingface_hub sends large files by an argument of its HTTP library that is deprecated
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.fixture
def measured():
    shift = rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}, origin=rs.Origin(**PLACE))
    return shift.with_outcome(outcome())


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Return what a stand-in for the hub holds, to which huggingface_hub talks in this test."""
    with running_hub() as (address, held):
        use(monkeypatch, address, tmp_path / "cache")
        yield held


def equal(a, b):
    return (a.digest(), a.origin, a.outcome, a.certificate) == (b.digest(), b.origin, b.outcome, b.certificate)


def test_a_saved_folder_loads_as_it_was(tmp_path, measured):
    folder = measured.save_pretrained(tmp_path / "shared")
    assert sorted(path.name for path in folder.iterdir()) == sorted([STEERING, CONFIG, CARD])
    assert equal(rs.SteeringFunction.from_pretrained(folder), measured)
    assert equal(rs.load(str(folder)), measured)
    assert equal(rs.load(folder), measured)
    rs.save(measured, tmp_path / "plain.safetensors")
    assert (folder / STEERING).read_bytes() == (tmp_path / "plain.safetensors").read_bytes()


def test_other_files_of_the_folder_stay_and_its_own_are_replaced(tmp_path, measured):
    (tmp_path / "notes.txt").write_text("mine")
    measured.save_pretrained(tmp_path)
    other = measured.with_origin(site="layers.3")
    other.save_pretrained(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert equal(rs.SteeringFunction.from_pretrained(tmp_path), other)


def test_an_estimator_shares_its_steering_and_not_its_moments(tmp_path):
    X, z = make_concept(0)
    estimator = rs.MiMiC(source=0, target=1).fit(X, z)
    folder = estimator.save_pretrained(tmp_path / "shared")
    back = rs.SteeringFunction.from_pretrained(folder)
    assert (back(X, z) == estimator.transform(X, concept=z)).all()
    assert back.certificate == estimator.certificate_
    rs.save(estimator, tmp_path / "whole")
    assert b"moments" in (tmp_path / "whole").read_bytes()
    assert b"moments/" not in (folder / STEERING).read_bytes()


def test_what_is_pushed_loads_as_it_was(hub, measured):
    address = measured.push_to_hub("me/kinder", token=WRITE, licence="Apache-2.0")
    files = hub.repositories["me/kinder"].branches["main"]
    assert sorted(files) == sorted([STEERING, CONFIG, CARD])
    assert address.endswith(f"/me/kinder/commit/{hub.repositories['me/kinder'].commit('main')}")
    assert equal(rs.SteeringFunction.from_pretrained("me/kinder"), measured)
    assert equal(rs.load("hub:me/kinder"), measured)


def test_a_second_download_of_a_commit_asks_for_no_file(hub, measured):
    measured.push_to_hub("me/kinder", token=WRITE)
    commit = hub.repositories["me/kinder"].commit("main")
    rs.SteeringFunction.from_pretrained("me/kinder", revision=commit)
    before = len(hub.asked)
    assert equal(rs.SteeringFunction.from_pretrained("me/kinder", revision=commit), measured)
    assert not [path for _, path in hub.asked[before:] if "/resolve/" in path]


def test_a_branch_holds_its_own_version(hub, measured):
    measured.push_to_hub("me/kinder", token=WRITE)
    other = measured.with_origin(site="layers.3")
    other.push_to_hub("me/kinder", token=WRITE, revision="deep")
    assert equal(rs.SteeringFunction.from_pretrained("me/kinder"), measured)
    assert equal(rs.SteeringFunction.from_pretrained("me/kinder", revision="deep"), other)
    assert equal(rs.load("hub:me/kinder@deep"), other)
    with pytest.raises(HubError, match="no revision 'absent'"):
        rs.load("hub:me/kinder@absent")


def test_a_private_repository_needs_a_token(hub, measured):
    measured.push_to_hub("me/secret", token=WRITE, private=True)
    with pytest.raises(HubError, match=r"private.*hf auth login"):
        rs.SteeringFunction.from_pretrained("me/secret")
    assert equal(rs.SteeringFunction.from_pretrained("me/secret", token=READ), measured)


def test_a_gated_repository_says_where_to_ask(hub, measured):
    measured.push_to_hub("me/gated", token=WRITE)
    hub.repositories["me/gated"].gated = True
    with pytest.raises(HubError, match="Ask for access"):
        rs.SteeringFunction.from_pretrained("me/gated", token=READ)


@pytest.mark.parametrize(("token", "status"), [(READ, 403), (False, 401)])
def test_a_token_without_the_right_to_write_is_named(hub, measured, token, status):
    with pytest.raises(HubError, match=rf"status {status}.*hf auth login"):
        measured.push_to_hub("me/kinder", token=token)
    assert hub.repositories == {}


def test_a_licence_that_the_hub_does_not_know_is_refused_before_anything_is_written(hub, measured):
    with pytest.raises(HubError, match=r"license.* must be one of"):
        measured.push_to_hub("me/kinder", token=WRITE, licence="my-own-licence")
    assert hub.repositories["me/kinder"].branches["main"] == {}


def test_a_missing_repository_is_named(hub):
    with pytest.raises(HubError, match=r"no repository me/absent.*Check the name"):
        rs.load("hub:me/absent")


@pytest.mark.parametrize("files", [{}, {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"0"}])
def test_a_repository_without_a_steering_is_refused(hub, files):
    hub.repositories["me/model"] = Repository(branches={"main": files})
    with pytest.raises(HubError, match=r"holds no steering.*lm\.load"):
        rs.SteeringFunction.from_pretrained("me/model")


def test_a_steering_beside_a_model_is_found(hub, tmp_path, measured):
    rs.save(measured, tmp_path / "s")
    files = {STEERING: (tmp_path / "s").read_bytes(), CONFIG: b'{"model_type": "llama"}'}
    hub.repositories["me/model"] = Repository(branches={"main": files})
    assert equal(rs.SteeringFunction.from_pretrained("me/model"), measured)


def test_a_file_of_another_kind_is_refused(hub, tmp_path):
    X, z = make_concept(0)
    rs.save(rs.ClassMoments.of(X, z), tmp_path / "m")
    hub.repositories["me/moments"] = Repository(branches={"main": {STEERING: (tmp_path / "m").read_bytes()}})
    with pytest.raises(FileFormatError, match=r"of kind 'class-moments', not 'steering-function'"):
        rs.SteeringFunction.from_pretrained("me/moments")
    hub.repositories["me/weights"] = Repository(branches={"main": {STEERING: b"not a tensor"}})
    with pytest.raises(FileFormatError, match=r"not a safetensors file"):
        rs.SteeringFunction.from_pretrained("me/weights")


def test_a_tampered_file_is_refused(hub, tmp_path, measured):
    measured.push_to_hub("me/kinder", token=WRITE)
    files = hub.repositories["me/kinder"].branches["main"]
    whole = files[STEERING]
    files[STEERING] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(FileFormatError, match=r"config\.json.*altered or replaced"):
        rs.SteeringFunction.from_pretrained("me/kinder")
    del files[CONFIG]
    with pytest.raises(FileFormatError, match="digest does not match"):
        rs.SteeringFunction.from_pretrained("me/kinder")
    # another sound steering is not the one that the configuration describes
    measured.push_to_hub("me/kinder", token=WRITE)
    rs.save(measured.with_origin(site="layers.3"), tmp_path / "other")
    files[STEERING] = (tmp_path / "other").read_bytes()
    with pytest.raises(FileFormatError, match="altered or replaced"):
        rs.SteeringFunction.from_pretrained("me/kinder")


def test_a_damaged_configuration_is_named(tmp_path, measured):
    folder = measured.save_pretrained(tmp_path)
    (folder / CONFIG).write_text("{")
    with pytest.raises(FileFormatError, match=r"config\.json is not JSON"):
        rs.load(str(folder))


def test_an_unreachable_hub_is_named_and_a_copy_is_used(monkeypatch, tmp_path, measured):
    with running_hub() as (address, _):
        use(monkeypatch, address, tmp_path / "cache")
        measured.push_to_hub("me/kinder", token=WRITE)
        rs.load("hub:me/kinder")
    assert equal(rs.load("hub:me/kinder"), measured)  # the server is gone, its file is on disk
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(HubError, match=r"cannot be reached.*give a file or folder"):
        rs.load("hub:me/kinder")
    with pytest.raises(HubError, match="cannot be reached"):
        measured.push_to_hub("me/kinder", token=WRITE)


def test_an_offline_hub_names_its_variable(monkeypatch, tmp_path, measured):
    use(monkeypatch, "http://127.0.0.1:9", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        rs.load("hub:me/kinder")


@pytest.mark.parametrize("name", ["kinder", "a/b/c", "me/../kinder", "me/kin der", "https://example.com/x"])
def test_what_is_not_a_repository_is_refused_without_a_request(hub, measured, name):
    with pytest.raises(ParameterError, match="OWNER/NAME"):
        rs.SteeringFunction.from_pretrained(name)
    with pytest.raises(ParameterError, match="OWNER/NAME"):
        measured.push_to_hub(name, token=WRITE)
    assert hub.asked == []


def test_a_mistyped_path_never_asks_the_network(hub):
    with pytest.raises(FileNotFoundError, match="hub:OWNER/NAME"):
        rs.load("me/kinder")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        rs.load("kinder.safetensors")
    assert hub.asked == []


def test_a_local_folder_comes_before_the_hub(hub, monkeypatch, tmp_path, measured):
    monkeypatch.chdir(tmp_path)
    measured.save_pretrained("me/kinder")
    assert equal(rs.SteeringFunction.from_pretrained("me/kinder"), measured)
    with pytest.raises(ParameterError, match="revision"):
        rs.SteeringFunction.from_pretrained("me/kinder", revision="main")
    assert hub.asked == []


def test_without_the_library_the_error_names_the_extra(monkeypatch, tmp_path, measured):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"repsurgery\[hub\]"):
        measured.save_pretrained(tmp_path)
    with pytest.raises(MissingExtraError, match=r"repsurgery\[hub\]"):
        rs.load("hub:me/kinder")
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_states_model_site_and_digest(tmp_path, measured):
    config = json.loads((measured.save_pretrained(tmp_path) / CONFIG).read_text())
    assert (config["library_name"], config["model"], config["site"]) == ("repsurgery", "smollm2-135m", "final")


CRAFTED = [
    "../evil",
    "me/..",
    "evil",
    "a/b/c",
    "me/[x](http://evil)",
    "me/x\n# Owned",
    "me/`x`",
    "",
    "me/x y",
    "me/x--y",
]


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_repository_is_refused_everywhere(tmp_path, measured, name):
    place = tmp_path / "shared"
    with pytest.raises(ParameterError, match="is not the name of a repository on the hub; write it as OWNER/NAME"):
        measured.save_pretrained(place, repository=name)
    with pytest.raises(ParameterError, match="write it as OWNER/NAME"):
        measured.push_to_hub(name)
    assert not list(tmp_path.iterdir())
    assert "me/kinder" in (measured.save_pretrained(place, repository="me/kinder") / CARD).read_text()
