"""Methods of plug-ins in a search, installed as packages on disk."""

import json
import re
import sys
import warnings

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import registry
from repsurgery.errors import DataError, ParameterError, PluginWarning
from repsurgery.studies.tuned.tables import candidates_table
from repsurgery.tuning import Evidence
from repsurgery.tuning.candidates import CANDIDATES, gatings, methods
from tests.plugins import write_plugin
from tests.strategies import make_concept
from tests.tuning.tiny import SITES, tiny_tune, write_inputs

WINNING = '''
import repsurgery as rs

def offer(evidence, site):
    G = evidence.gradients(site)
    natural = rs.NaturalSteering(kl=1.0, folds=2).fit(G, fisher=evidence.fisher(site))
    # a place of its own and a strength, which the search replaces
    yield "acme descent", natural.steering_.with_origin(model="another", site="nowhere", strength=7.0)

def harmful(evidence, site):
    ((_, function),) = offer(evidence, site)
    yield "acme ascent", function.at(-1.0)

def moody(evidence, site):
    """Name its candidates differently in each call, so that its slope is not known."""
    ((_, function),) = offer(evidence, site)
    yield f"acme mood {len(evidence.gradients(site))}", function
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a package with one module that registers raced methods."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def installed(package, source, names):
        entries = {"repsurgery.candidates": {name: f"{{module}}:{value}" for name, value in names.items()}}
        write_plugin(tmp_path / "site", package, source, entries)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, package, raising=False)
        registry._entry_points.cache_clear()

    yield installed
    registry._entry_points.cache_clear()


@pytest.fixture
def alone(monkeypatch):
    """Take all of our own methods but mean matching, and both gates, out of the registry."""
    monkeypatch.setattr(CANDIDATES, "_own", {"mean": CANDIDATES.own()["mean"]})


def rows_of(record, method):
    return [row for row in record["candidates"] if row["method"] == method]


@pytest.fixture
def won(install, alone, model_folder, tmp_path):
    """Return a search that a plug-in wins, and the path of its steering."""
    install("acme_descent", WINNING, {"descent": "offer", "ascent": "harmful", "moody": "moody"})
    (tmp_path / "inputs").mkdir()
    table, prompts = write_inputs(tmp_path / "inputs")
    tuned = tiny_tune(model_folder, tmp_path / "work", texts=table, prompts=prompts, scorer="letters")
    tuned.save(tmp_path / "inputs" / "won.safetensors")
    return tuned, tmp_path / "inputs" / "won.safetensors"


def test_a_plugin_is_raced_wins_and_is_made_again_by_its_lock(won, tmp_path, monkeypatch):
    tuned, file = won
    record = json.loads(json.dumps(tuned.record, allow_nan=False))
    chosen = record["chosen"]
    assert (chosen["method"], chosen["name"]) == ("descent", "acme descent")
    assert {row["site"] for row in rows_of(record, "descent")} == set(SITES)
    (winner,) = (row for row in record["candidates"] if row["status"] == "chosen")
    assert winner["slope"] < 0
    # raced at the price of every other candidate, and brought there by its measured price
    assert 0.09 < winner["measured_kl"] <= 0.1
    assert winner["measure"] == min(
        row["measure"] for row in record["candidates"] if row["kl"] == 0.1 and row["measure"]
    )
    # what does harm is dropped by its held-out slope
    dropped = rows_of(record, "ascent")
    assert len(dropped) == len(SITES)
    assert all("Its held-out slope shows no effect (+" in row["reason"] for row in dropped)
    # nothing is known of the slope of what has other names in the halves
    assert {row["slope"] for row in rows_of(record, "moody")} == {None}
    # of our own methods, those that are registered alone
    assert {row["method"] for row in record["candidates"]} == {"mean", "descent", "ascent", "moody"}
    assert {row["scope"] for row in record["candidates"]} == {"all"}
    assert f"acme descent, at {chosen['site']}" in str(candidates_table(record))
    again = rs.tune(lock=file.with_name("won.lock.json"), work_dir=tmp_path / "fresh")
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    origin = again.steering.origin
    assert (origin.site, origin.strength) == (chosen["site"], chosen["strength"])
    # a plug-in that changed, and one that is gone
    monkeypatch.setattr(CANDIDATES, "group", None)
    with monkeypatch.context() as patch:
        patch.setitem(CANDIDATES._own, "descent", lambda evidence, site: [])
        with pytest.raises(DataError, match=r"no candidate 'acme descent' at .* any more\. .*Install the version"):
            rs.tune(lock=file.with_name("won.lock.json"), work_dir=tmp_path / "fresh")
    with pytest.raises(ParameterError, match=r"plug-in 'descent' .*not installed\. Install its package, or"):
        rs.tune(lock=file.with_name("won.lock.json"), work_dir=tmp_path / "fresh")


FAULTS = {
    "raises": ("raise RuntimeError('no licence')", "raised RuntimeError: no licence"),
    "refuses": ("evidence.moments('nothing', site)", "raised DataError: There are no moments of 'nothing'"),
    "exits": ("raise SystemExit('bye')", "raised SystemExit: bye"),
    "none": ("return None", "raised TypeError"),
    "array": ("return [('a', np.ones(8))]", "each candidate must be a pair of a name and a SteeringFunction"),
    "nameless": ("return [shift(evidence, site)]", "each candidate must be a pair"),
    "empty": ("return [(' ', shift(evidence, site))]", "a name is one line of text"),
    "twice": ("return [('a', shift(evidence, site))] * 2", "names a candidate 'a'"),
    "wide": ("return [('a', rs.SteeringFunction({None: rs.Translation(np.ones(3))}))]", "has 3 features"),
    "ours": ("return [(f'mean on texts at {site}', shift(evidence, site))]", "as another one is called"),
    "endless": ("return ((str(i), shift(evidence, site)) for i in range(10**9))", "more than 1000 candidates"),
    "half": ("return [('a', shift(evidence, site))] if len(evidence.part) == 2 else [1]", "must be a pair"),
}
HEAD = """
import numpy as np
import repsurgery as rs

def shift(evidence, site):
    return rs.SteeringFunction({None: rs.Translation(np.ones(evidence.fisher(site).dim))})

def good(evidence, site):
    return [(f"good at {site}", shift(evidence, site))]
"""


def test_a_broken_plugin_is_named_once_and_the_search_goes_on(install, model_folder, tmp_path):
    functions = [f"def {name}(evidence, site):\n    {body}\n" for name, (body, _) in FAULTS.items()]
    install("acme_faults", HEAD + "\n".join(functions), {name: name for name in FAULTS})
    install("acme_good", HEAD, {"good": "good", "mean": "good", "both": "good"})
    install("acme_other", HEAD, {"both": "good"})
    install("acme_import", "raise RuntimeError('no such device')", {"import": "good"})
    install("acme_kind", "number = 7", {"kind": "number"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PluginWarning)
        tuned = tiny_tune(model_folder, tmp_path / "work", minutes=0)
    said = [str(one.message) for one in caught if issubclass(one.category, PluginWarning)]
    expected = {
        **{f"plug-in '{name}' (repsurgery.candidates)": words for name, (_, words) in FAULTS.items()},
        "plugin 'import' (repsurgery.candidates) of the package acme_import 1.0": "RuntimeError: no such device",
        "plugin 'kind' (repsurgery.candidates)": "acme_kind:number is not a function",
        "acme_good 1.0 registers the raced method 'mean'": "the one of repsurgery is used",
        "raced method 'both' is left out": "acme_good 1.0 and acme_other 1.0",
    }
    for name, words in expected.items():
        (one,) = (text for text in said if name in text)
        assert words in one
    assert len(said) == len(expected)
    # everything else takes part
    assert {row["name"] for row in rows_of(tuned.record, "good")} == {f"good at {site}" for site in SITES}
    assert not {row["method"] for row in tuned.record["candidates"]} & {*FAULTS, "both", "import", "kind"}
    assert {row["method"] for row in tuned.record["candidates"]} >= {"mean", "mimic", "leace", "natural", "blend"}


def test_our_own_methods_offer_what_the_search_races(evidence, searched):
    raced = {row["name"] for row in searched.tuned.record["candidates"]}
    for method in methods().values():
        for site in SITES:
            offered = dict(method(evidence, site))
            assert offered and set(offered) <= raced
            assert all(isinstance(one, rs.SteeringFunction) for one in offered.values())
    assert set(methods()) | set(gatings()) == set(CANDIDATES.own())


def test_evidence_of_own_vectors_fits_what_an_estimator_fits():
    X, z = make_concept(0)
    source, target = sorted(set(z))[:2]
    rows = np.isin(z, [source, target])
    X, z = X[rows], np.asarray(z)[rows]
    evidence = Evidence.of(X, z, source=source, target=target, site="final", gradients=X[:10])
    (_, function), *_ = methods()["mean"](evidence, "final")
    expected = rs.MeanMatching(source=source, target=target, gate="always").fit(X, z)
    np.testing.assert_allclose(function(X), expected.steering_(X), rtol=1e-6, atol=1e-9)
    # the halves differ, and together they are the whole
    halves = [evidence.half(i) for i in (0, 1)]
    counts = [half.moments("on-policy", "final")[source].count for half in halves]
    assert sum(counts) == evidence.moments("on-policy", "final")[source].count
    np.testing.assert_array_equal(np.concatenate([h.gradients("final") for h in halves]), evidence.gradients("final"))
    assert not np.array_equal(halves[0].gradients("final"), halves[1].gradients("final"))
    assert re.match(r"Evidence\(.* at final; texts, on-policy\)", repr(evidence))
    with pytest.raises(DataError, match="There are no moments of 'steps' in this search; there are texts, on-policy"):
        evidence.moments("steps", "final")
    with pytest.raises(DataError, match="There are no gradients of 'texts' at 'final' in this search; see"):
        evidence.gradients("final", fit="texts")
