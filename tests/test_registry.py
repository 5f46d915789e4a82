"""Names are found lazily, unknown ones are named, and plugins neither break nor replace anything."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import repsurgery as rs
from repsurgery.errors import FileFormatError, ParameterError, PluginWarning
from repsurgery.experiments.toxicity import parse_configuration
from repsurgery.gates.base import GATES
from repsurgery.moments.shrinkage import SHRINKAGES, shrink
from repsurgery.registry import Registry, call_reading, installed_plugins
from repsurgery.scorers.base import SCORERS, load_scorer
from repsurgery.steering.base import METHODS
from repsurgery.studies.fairness import make_spec
from repsurgery.studies.fairness.spec import parse_method
from repsurgery.workflows.fit import fit_table
from tests.plugins import write_plugin
from tests.strategies import make_concept

X, Z = make_concept(0)
BROKEN = "raise RuntimeError('no such device')"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that writes a plugin package and puts it on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def install(package, source, **entries):
        groups = {f"repsurgery.{group}": names for group, names in entries.items()}
        write_plugin(tmp_path / "site", package, source, groups)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, package, raising=False)
        from repsurgery import registry

        registry._entry_points.cache_clear()

    yield install
    from repsurgery import registry

    registry._entry_points.cache_clear()


@pytest.mark.parametrize("registry", [METHODS, GATES, SHRINKAGES, SCORERS])
def test_an_unknown_name_lists_the_known_ones(registry):
    first, *_, last = registry
    with pytest.raises(ParameterError, match=rf"There is no {registry.noun} 'magic'; choose one of {first}, .*{last}"):
        registry["magic"]
    with pytest.raises(ParameterError, match="must be one of"):
        registry[["mimic"]]
    assert "magic" not in registry and first in registry


def test_every_built_in_name_is_registered_by_its_own_file():
    assert list(METHODS.own()) == ["barycenter", "diagonal", "leace", "mean", "midsteer", "mimic", "trace"]
    assert list(GATES.own()) == ["always", "labels", "lda", "logistic", "mlp", "nearest-mean", "qda"]
    assert list(SHRINKAGES.own()) == ["ledoit-wolf", "none", "oas", "pooled", "relative-ridge", "ridge"]
    assert all(getattr(rs, estimator.__name__) is estimator for estimator in METHODS.own().values())


@pytest.mark.parametrize("estimator", METHODS.own().values())
def test_every_method_is_on_the_page_of_public_names(estimator):
    assert f"`{estimator.__name__}`" in (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    assert "Guarantees\n" in estimator.__doc__


def test_an_estimator_is_public_by_its_registration_alone(monkeypatch):
    new = type("Newcomer", (rs.MiMiC,), {})
    monkeypatch.setitem(METHODS._own, "newcomer", new)
    assert rs.Newcomer is new
    with pytest.raises(AttributeError, match="Stranger"):
        _ = rs.Stranger


def test_each_estimator_states_its_claims():
    assert {name: estimator.claims for name, estimator in METHODS.own().items()} == {
        "barycenter": ("means", "covariances", "neighbours"),
        "diagonal": ("means", "variances", "neighbours"),
        "leace": ("means",),
        "mean": ("means",),
        "midsteer": ("means",),
        "mimic": ("means", "covariances", "neighbours"),
        "trace": ("means", "neighbours"),
    }


def test_a_method_that_takes_no_rows_is_found_and_not_listed(tmp_path):
    """What goes through all methods fits rows; who asks for one by name learns what it is fitted from."""
    assert METHODS["natural"] is rs.NaturalSteering and "natural" in METHODS
    assert METHODS.unlisted() == ["natural"] and not {"natural"} & {*METHODS, *METHODS.own()}
    assert METHODS["natural"].fitted_from == "gradients"
    assert {METHODS[name].fitted_from for name in METHODS} == {"rows"}
    (tmp_path / "texts.csv").write_text("text,label\na,b\n")
    with pytest.raises(ParameterError, match=r"'natural' is fitted from gradients, .* With rows, choose one of bary"):
        fit_table(tmp_path / "texts.csv", method="natural")
    assert parse_method("natural") is None and parse_method("mean") == ("mean", None)
    line = parse_configuration("natural-mean all fit=on-policy kl=0.1")
    assert line.from_gradients and not parse_configuration("mean all").from_gradients
    with pytest.raises(ParameterError, match="choose one of natural, natural-mean, barycenter, "):
        parse_configuration("mean-mean all")


def test_threads_find_every_name():
    code = """
from concurrent.futures import ThreadPoolExecutor
from repsurgery.steering.base import METHODS
from repsurgery.gates.base import GATES
names = [(METHODS, name) for name in ("mimic", "leace", "midsteer", "mean")]
names += [(GATES, name) for name in ("lda", "mlp", "qda", "always")]
with ThreadPoolExecutor(8) as pool:
    assert None not in pool.map(lambda pair: pair[0][pair[1]], names * 4)
assert len(METHODS.own()) == 7 and len(GATES.own()) == 7
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True)


def test_two_objects_of_one_package_do_not_share_a_name():
    registry = Registry("thing", home="repsurgery.errors")
    registry.register("a")(make_concept)
    registry.register("a")(make_concept)  # a module that is imported again
    with pytest.raises(ParameterError, match="both register the thing 'a'"):
        registry.register("a")(write_plugin)


def test_no_name_falls_through_to_another():
    with pytest.raises(ParameterError, match="no shrinkage 'pooled-oas'"):
        shrink("pooled-oas", 0.1, rs.ClassMoments.of(X, Z)[0], None)
    with pytest.raises(ParameterError, match="no shrinkage 'magic'"):
        rs.MiMiC(shrinkage="magic").fit(X, Z)
    with pytest.raises(ParameterError, match="no gate 'magic'"):
        rs.MiMiC(gate="magic").fit(X, Z)
    with pytest.raises(ParameterError, match="no gate 'magic'"):
        rs.MiMiC(gate="magic").partial_fit(X, Z)
    with pytest.raises(ParameterError, match=r"no methods \['mimic-magic'\].*mimic-oas"):
        make_spec("bios", methods=["mimic-magic"])
    assert parse_method("mimic-oas") == ("mimic", "oas")
    assert parse_method("trace-relative-ridge") == ("trace", "relative-ridge")
    assert parse_method("-oas") is parse_method("magic") is None


def test_a_function_may_read_only_what_is_offered():
    assert call_reading(lambda a, c=3: (a, c), a=1, b=2) == (1, 3)
    with pytest.raises(ParameterError, match="reads rows; it may read a"):
        call_reading(lambda rows: rows, a=1)


def test_a_plugin_is_imported_only_when_it_is_used(installed):
    installed("acme_lazy", "import repsurgery as rs\nclass Slow(rs.MiMiC): ...", methods={"slow": "acme_lazy:Slow"})
    assert METHODS["mimic"] is rs.MiMiC and "slow" in METHODS
    assert "acme_lazy" not in sys.modules
    assert METHODS["slow"].__name__ == "Slow"
    assert list(METHODS)[-1] == "slow"


def test_a_broken_plugin_is_named_and_left_out(installed):
    installed("acme_broken", BROKEN, methods={"broken": "acme_broken:X"}, gates={"broken": "acme_broken:x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert METHODS["mimic"] is rs.MiMiC
        rs.MiMiC(gate="lda").fit(X, Z)
    named = r"plugin 'broken' \(repsurgery.methods\) of the package acme_broken 1.0 .*RuntimeError: no such device"
    with pytest.warns(PluginWarning, match=named):
        assert list(METHODS) == list(METHODS.own())
    with pytest.warns(PluginWarning, match=named), pytest.raises(ParameterError, match=r"cannot be used.*acme_broken"):
        METHODS["broken"]
    with pytest.warns(PluginWarning, match="repsurgery.gates"), pytest.raises(ParameterError, match="acme_broken"):
        rs.MiMiC(gate="broken").fit(X, Z)


def test_a_plugin_of_another_sort_is_broken(installed):
    installed(
        "acme_wrong",
        "number = 3\nclass Gate: ...\ndef text(moments): return 'text'\ndef scorer(): return 3",
        methods={"class": "acme_wrong:Gate", "gone": "acme_wrong:Gone"},
        gates={"text": "acme_wrong:text"},
        scorers={"number": "acme_wrong:number", "no-scorer": "acme_wrong:scorer"},
    )
    with pytest.warns(PluginWarning, match="not a subclass of an estimator"), pytest.raises(ParameterError):
        METHODS["class"]
    with pytest.warns(PluginWarning, match="AttributeError"), pytest.raises(ParameterError, match="Gone"):
        METHODS["gone"]
    with pytest.raises(ParameterError, match="'text' returned a str"):
        rs.MiMiC(gate="text").fit(X, Z)
    with pytest.warns(PluginWarning, match="not a function"), pytest.raises(ParameterError):
        SCORERS["number"]
    with pytest.raises(ParameterError, match="has name, version and digest"):
        load_scorer("no-scorer")


def test_a_plugin_never_replaces_a_built_in_name(installed):
    installed("acme_thief", BROKEN, methods={"mimic": "acme_thief:X"})
    with pytest.warns(PluginWarning, match="acme_thief 1.0 registers the method 'mimic'.*one of repsurgery is used"):
        assert METHODS["mimic"] is rs.MiMiC
    with pytest.warns(PluginWarning, match="acme_thief 1.0"):
        assert list(METHODS) == list(METHODS.own())


def test_two_plugins_of_one_name_are_both_named(installed):
    source = "import repsurgery as rs\nclass Mine(rs.MiMiC): ..."
    for package in ("acme_one", "acme_two"):
        installed(package, source, methods={"mine": f"{package}:Mine", package: f"{package}:Mine"})
    with pytest.raises(
        ParameterError, match=r"acme_one 1.0 and acme_two 1.0 all register the method 'mine'.*Uninstall"
    ):
        METHODS["mine"]
    with pytest.warns(PluginWarning, match="'mine' is left out, because acme_one 1.0 and acme_two 1.0"):
        assert list(METHODS)[-2:] == ["acme_one", "acme_two"]


def test_two_gates_do_not_share_a_kind_in_files():
    with pytest.raises(ParameterError, match=r"the kind 'linear', as repsurgery.gates.rules.LinearGate"):
        type("Other", (rs.gates.Gate,), {"kind": "linear"})


def test_build_gate_builds_the_gate_of_the_estimator():
    w = 1.0 + (Z == 0)
    for name in GATES.own():
        options = {"random_state": 0} if name == "mlp" else {"shrinkage": "oas"} if name in ("lda", "qda") else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the network does not converge on so few rows
            built = rs.build_gate(name, X, Z, sample_weight=w, **options)
            expected = rs.MeanMatching(gate=name, **options).fit(X, Z, sample_weight=w).gate_
        assert type(built) is type(expected) and built.classes == expected.classes
        assert all((built.arrays()[key] == array).all() for key, array in expected.arrays().items())
    moments = rs.ClassMoments.of(X, Z)
    assert (rs.build_gate("nearest-mean", moments).coef == rs.MiMiC.from_moments(moments).gate_.coef).all()
    gate = rs.build_gate("qda", moments)
    assert rs.build_gate(gate, moments) is gate


def test_a_parameter_that_a_gate_does_not_read_is_refused():
    with pytest.raises(ParameterError, match="'nearest-mean' does not read shrinkage or ridge"):
        rs.build_gate("nearest-mean", X, Z, shrinkage="oas", ridge=0.1)
    with pytest.raises(ParameterError, match="'lda' does not read random_state"):
        rs.build_gate("lda", X, Z, random_state=0)
    with pytest.raises(ParameterError, match="hold labels and weights already"):
        rs.build_gate("lda", rs.ClassMoments.of(X, Z), Z)
    with pytest.raises(ParameterError, match="no shrinkage 'magic'"):
        rs.build_gate("lda", X, Z, shrinkage="magic")
    with pytest.raises(rs.errors.RowsNeededError, match="'nearest-mean'"):
        rs.build_gate("logistic", rs.ClassMoments.of(X, Z))


def test_a_subclass_inherits_parameters_and_no_guarantees():
    class Renamed(rs.MiMiC):
        pass

    class Stating(rs.MiMiC):
        claims = rs.MiMiC.claims

    est = Renamed(source=0, target=1, gate="lda").fit(X, Z)
    assert est.certificate_.claims == () and est.certificate_.method == "Renamed"
    assert est.verify(X, Z).verification_.verdict == "cannot tell"
    assert (est.map_.weight == rs.MiMiC(source=0, target=1).fit(X, Z).map_.weight).all()
    assert Stating().fit(X, Z).certificate_.claims == rs.MiMiC.claims != ()


def test_a_plugin_that_exits_on_import_is_broken_like_any_other(installed):
    installed("acme_exit", "raise SystemExit('licence missing')", methods={"exit": "acme_exit:X"})
    with pytest.warns(PluginWarning, match="acme_exit 1.0 is broken.*SystemExit: licence missing"):
        assert list(METHODS) == list(METHODS.own())


def test_a_changed_plugin_has_another_source(installed, tmp_path):
    source = "import repsurgery as rs\nclass Mine(rs.MiMiC): ..."
    installed("acme_source", source, methods={"mine": "acme_source:Mine"})
    before = METHODS.source("mine")
    (tmp_path / "site" / "acme_source.py").write_text(f"{source}\n# changed")
    assert before != METHODS.source("mine") and "acme_source 1.0" in before["method mine"]
    assert METHODS.source("mimic") == {}
    assert installed_plugins()["acme_source"] == "1.0"


def test_a_plugin_does_not_replace_a_method_with_a_shrinkage(installed):
    installed("acme_oas", BROKEN, methods={"mimic-oas": "acme_oas:X"})
    assert parse_method("mimic-oas") == ("mimic", "oas")


def test_an_estimator_that_no_file_could_name_is_not_saved(tmp_path):
    class Local(rs.MiMiC): ...

    class Impostor(rs.MiMiC): ...

    Impostor.__name__, Impostor.__module__ = "MiMiC", "repsurgery.steering.mimic"
    for cls, message in ((Local, "no installed package registers it"), (Impostor, "not the class that is registered")):
        with pytest.raises(FileFormatError, match=message):
            rs.save(cls().fit(X, Z), tmp_path / "f.safetensors")
    assert not list(tmp_path.iterdir())
    rs.save(Local().fit(X, Z).steering_, tmp_path / "f.safetensors")


def test_names_import_no_plugin(installed):
    installed("acme_lazy", BROKEN, methods={"slow": "acme_lazy:X", "mimic": "acme_lazy:X"})
    with pytest.warns(PluginWarning, match="'mimic', which is a name of repsurgery") as caught:
        assert METHODS.names() == (*METHODS.own(), "slow")
    assert len(caught) == 1 and "acme_lazy" not in sys.modules


def test_listed_objects_are_imported_one_by_one_and_keep_their_order():
    code = """
import sys
from repsurgery.registry import Registry
things = Registry("thing", own={"b": "colorsys:rgb_to_hls", "a": "wave:open"})
assert things.names() == ("b", "a") and not {"colorsys", "wave"} & set(sys.modules)
assert things["a"].__name__ == "open" and "colorsys" not in sys.modules
assert list(things.own()) == list(things) == ["b", "a"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
