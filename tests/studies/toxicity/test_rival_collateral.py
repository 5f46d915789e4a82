"""A rival that changes the model's likelihoods has the collateral measures of a steering."""

from contextlib import contextmanager

import pytest

from repsurgery import lm
from repsurgery.studies.toxicity import run_toxicity
from repsurgery.studies.toxicity.generators import GENERATORS, TextGenerator
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from repsurgery.studies.toxicity.study import Study
from tests.studies.toxicity.small import make_files, small_spec

MEASURES = {"kl", "kl.own", "wikitext.word_perplexity", "wikitext.byte_perplexity"}
STEERED = {}


@GENERATORS.register("as-rival")
class AsRival(TextGenerator):
    """The steering of the line "mean all", as a rival whose model is steered inside a block."""

    def generate(self, prompts, seeds):
        return SteeredGenerator(self.name, self.context, STEERED["mean all"]).generate(prompts, seeds)

    @contextmanager
    def likelihood_model(self):
        with lm.steer(self.context.model, STEERED["mean all"]):
            yield self.context.model


@GENERATORS.register("only-sampling")
class OnlySampling(AsRival):
    """The same texts, without likelihoods."""

    def likelihood_model(self):
        return TextGenerator.likelihood_model(self)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collateral")
    make_files(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def keep_the_steering():
    fitted = Study.fitted
    with pytest.MonkeyPatch.context() as patch:

        def kept(self, vectors):
            found = fitted(self, vectors)
            STEERED.update({name: one.steering for name, one in found.items()})
            return found

        patch.setattr(Study, "fitted", kept)
        yield


def run(files, work="work", **differences):
    options = {"configurations": ["mean all", "as-rival", "only-sampling"], **differences}
    return run_toxicity(small_spec(files, **options), data_dir=files / "data", work_dir=files / work, progress=False)


@pytest.fixture(scope="module")
def record(files):
    return run(files)


def test_a_steering_as_a_rival_has_the_same_collateral(record):
    steered, rival = record.configured("mean all"), record.configured("as-rival")
    for key in MEASURES:
        assert rival.measures[key].value == pytest.approx(steered.measures[key].value, rel=1e-4), key
        assert rival.differences[key].value == pytest.approx(steered.differences[key].value, rel=1e-3), key
        assert key.startswith("wikitext") or steered.measures[key].value > 0.001, "this steering would show nothing"


def test_a_rival_that_only_samples_says_why_it_has_none(record):
    assert not MEASURES & set(record.configured("only-sampling").measures)
    (note,) = [note for note in record.notes if "likelihoods" in note]
    assert "'only-sampling'" in note and "as-rival" not in note


def test_a_second_run_reads_no_likelihood_again(files, record, monkeypatch):
    monkeypatch.setattr(AsRival, "likelihood_model", None)
    monkeypatch.setattr(OnlySampling, "likelihood_model", lambda self: TextGenerator.likelihood_model(self))
    assert run(files).configurations == record.configurations


def test_without_neutral_texts_and_documents_only_the_own_texts_remain(files):
    rival = run(files, "fewer", neutral=0, wikitext_documents=0).configured("as-rival")
    assert set(rival.measures) & MEASURES == {"kl.own"}
