import pytest

from repsurgery.errors import ParameterError
from repsurgery.studies.toxicity import Configuration, make_toxicity_spec, parse_configuration, toxicity_toml
from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.spec import TABLE, load_toxicity_spec


@pytest.mark.parametrize(
    "words",
    [
        "mean selective",
        "mimic all shrinkage=oas",
        "mimic all fit=on-policy shrinkage=pooled alpha=0.5",
        "leace selective gate=calibrated",
        "mimic selective fit=on-policy gate=calibrated shrinkage=oas strength=0.5 site=layers.3 rows=100",
        "natural-mean all fit=on-policy kl=0.05",
        "mean all fit=on-policy kl=0.15 credit=step rounds=2",
        "mean selective fit=on-policy gate=soft kl=0.05",
    ],
)
def test_a_configuration_is_its_name(words):
    assert parse_configuration(words).name == words
    assert parse_configuration(f"  {words.replace(' ', '   ')} ") == parse_configuration(words)


def test_what_is_as_usual_is_left_out_of_the_name():
    assert parse_configuration("mean all fit=last strength=1 rows=0") == Configuration("mean", "all")
    assert Configuration("mean", "all").name == "mean all"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mean", "a method and a scope"),
        ("", "a method and a scope"),
        ("median all", "choose one of natural, natural-mean, barycenter"),
        ("mean some", "choose one of selective"),
        ("mean all fit=first", "choose one of last"),
        ("mean selective gate=oracle", "choose one of calibrated, soft, always"),
        ("mimic all shrinkage=oracle", "choose one of preset, ledoit-wolf"),
        ("mean all strength=-1", "at least 0"),
        ("mean all strength=inf", "at least 0"),
        ("mean all strength=nan", "at least 0"),
        ("mean all rows=1.5", "at least 2"),
        ("mean all loud", "after method and scope"),
        ("mean all fit=last fit=tokens", "once each"),
        ("mean all volume=3", "after method and scope"),
        ("mean all method=mimic", "after method and scope"),
        ("mean all gate=calibrated", "steers all vectors"),
        ("mean all rows=1", "at least 2"),
        ("mean all kl=-1", "nats, at least 0"),
        ("mean all kl=cheap", "nats, at least 0"),
        ("mean all kl=0.1 strength=2", "leave one of them out"),
        ("mean all rounds=2", "Add fit=on-policy"),
        ("mean all credit=step", "Add fit=on-policy"),
        ("mean all fit=on-policy rounds=0", "at least 1"),
        ("mean selective fit=on-policy rounds=2", "several rounds"),
        ("natural all kl=0.1", "fit=on-policy"),
        ("natural all fit=on-policy", "has no price"),
        ("natural selective fit=on-policy kl=0.1", "for all vectors"),
        ("mimic all shrinkage=pooled alpha=2", "'auto' or a number from 0 to 1"),
        ("mimic all shrinkage=pooled alpha=much", "'auto' or a number from 0 to 1"),
        ("mimic all alpha=0.5", "shrinkage='ridge' does not read it"),
        ("leace all shrinkage=pooled", "'leace' does not have such a pair"),
    ],
)
def test_other_words_are_refused(words, message):
    with pytest.raises(ParameterError, match=message):
        parse_configuration(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dexpert alpha=2", "Did you mean 'dexperts'"),
        ("DExperts alpha=2", "Did you mean 'dexperts'"),
        ("dexpert", "Did you mean 'dexperts'"),
        ("tune kl=0.1", "Did you mean 'tuned'"),
        ("oracle volume=2", r"'oracle', which is no rival; choose one of .*aura, dapt, destein"),
        ("mean strength=2", "has scope 'strength=2'"),
        ("median all", "choose one of natural, natural-mean, barycenter"),
    ],
)
def test_a_misspelt_rival_is_told_the_known_ones(words, message):
    with pytest.raises(ParameterError, match=message):
        parse_line(words)


def test_presets_are_the_paper_s_protocol():
    paper = make_toxicity_spec("paper")
    assert (paper.samples, paper.tokens, paper.top_p, paper.temperature) == (25, 20, 0.9, 1.0)
    assert (paper.model, paper.fluency, paper.prompt_count) == ("gpt2-large", "gpt2-xl", 10_000)
    assert (paper.ridge, paper.prompt_toxicity, paper.max_length) == (1e-7, 0.5, 512)
    assert paper.configurations == TABLE
    assert all(c.fit == "last" and c.gate == "nearest-mean" and c.site == "final" for c in paper.parsed())
    local = make_toxicity_spec("local")
    assert (local.samples, local.tokens, local.prompt_count, local.model) == (25, 20, 200, "smollm2-135m")
    # on our own models MiMiC keeps to what the texts support; the paper's preset keeps the paper's ridge
    for preset, shrinkage in {"paper": "preset", "local": "pooled"}.items():
        mimic = [c for c in make_toxicity_spec(preset).parsed() if c.method == "mimic"]
        assert len(mimic) == 2 and {(c.shrinkage, c.alpha) for c in mimic} == {(shrinkage, "auto")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "huge"}, "no preset"),
        ({"preset": "demo"}, "no preset 'demo'; it has paper, local"),
        ({"volume": 3}, "no option 'volume'"),
        ({"samples": 0}, "samples is 0"),
        ({"samples": 2.5}, "samples is 2.5"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be greater than 0"),
        ({"top_p": 2.0}, "less than or equal to 1"),
        ({"fit_rows": 1}, "at least 2"),
        ({"held_out": 2}, "held_out is 2"),
        ({"policy_clean": 0.9, "policy_toxic": 0.1}, "policy_clean must not be the larger"),
        ({"preset": ["x"]}, "no preset"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be greater than 0"),
        ({"false_steer_rate": 1.5}, "false_steer_rate is 1.5; it must be less than or equal to 1"),
        ({"source": "x", "target": "x"}, "two labels"),
        ({"scorers": []}, "scorers is .*; it must have at least 1 item"),
        ({"configurations": ["mean sometimes"]}, "choose one of selective"),
        ({"experiment": "bios"}, "experiment is 'bios'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        make_toxicity_spec(**options)


def test_a_study_survives_toml(tmp_path):
    spec = make_toxicity_spec(
        "local", configurations=["mimic all strength=0.5", "mean all"], samples=3, data='a "b".csv'
    )
    (tmp_path / "s.toml").write_text(toxicity_toml(spec), encoding="utf-8")
    assert load_toxicity_spec(tmp_path / "s.toml") == spec
    assert load_toxicity_spec(tmp_path / "s.toml", samples=4).samples == 4
    assert toxicity_toml(make_toxicity_spec("local")) == 'experiment = "toxicity"\npreset = "local"\n'


@pytest.mark.parametrize("gate", ["always", "labels"])
def test_a_gate_that_does_not_classify_vectors_is_refused(gate):
    with pytest.raises(ParameterError, match=r"does not classify vectors.*scope all"):
        parse_configuration(f"mean selective gate={gate}")
