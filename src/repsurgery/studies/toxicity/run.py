"""`run_toxicity`: from a specification to the record of a toxicity study."""

import datetime
import os
from pathlib import Path

from repsurgery import lm
from repsurgery.datasets import Documents, load_wikitext2
from repsurgery.errors import DataError, MissingExtraError
from repsurgery.lm.load.folder import cache_root
from repsurgery.lm.twins import one_thread_each, twins
from repsurgery.scorers import load_scorer
from repsurgery.studies.common.clock import Announce, Clock
from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.naming import plain_name, plain_options
from repsurgery.studies.toxicity.data import choose_texts
from repsurgery.studies.toxicity.gains import gain_notes
from repsurgery.studies.toxicity.measures import measure
from repsurgery.studies.toxicity.notes import toxicity_notes
from repsurgery.studies.toxicity.own_data import Choices
from repsurgery.studies.toxicity.record import Configured, ToxicityRecord
from repsurgery.studies.toxicity.rows import (
    agreements,
    configured,
    document_facts,
    examples,
    fluency_facts,
    model_facts,
    source_facts,
    writing_seconds,
)
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.study import BASE, Study

__all__ = ["run_toxicity"]


def run_toxicity(
    spec: ToxicitySpec,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> ToxicityRecord:
    """Run a toxicity study and return its record.

    Parameters
    ----------
    spec : ToxicitySpec
    data_dir : path or None
        The folder of the named data; None is the folder that `REPSURGERY_DATA` names, else the hub.
    work_dir : path or None
        The folder of vectors, texts and judgements; None is the user's cache. A run that was interrupted continues
        from there, prompt by prompt.
    device, dtype
        Where and in which dtype the models are loaded, see `lm.load`; the record states both if they are given.
    progress : bool
        Show progress bars with the remaining time.
    announce : function of one text
        Called with the name of each step as it begins.
    """
    work = Path(work_dir) if work_dir is not None else cache_root() / "toxicity"
    clock = Clock(announce)
    with one_thread_each():
        with clock.step(f"texts: {plain_name(spec.data)}, {plain_name(spec.prompts)}"):
            choices, texts = choose_texts(spec, data_dir)
            wikitext = _wikitext(choices, data_dir)
            spec = choices.spec
            if chosen := choices.sentence:
                announce(chosen)
            documents = None if wikitext is None else _measured(spec, wikitext)
            scorers = {plain_name(name): load_scorer(name) for name in spec.scorers}
        with clock.step(f"model: {plain_name(spec.model)}"):
            where = {"device": device, "dtype": dtype}
            pair = twins(*lm.load(spec.model, **where))
            judges = {
                plain_name(name): pair if name == spec.model else twins(*lm.load(name, **where)) for name in spec.judges
            }
            study = Study(spec, texts, pair, judges, scorers, work, progress=progress)
            study.made_rivals()  # a bad line is refused before hours of work
        with clock.step("reading vectors"):
            vectors = study.vectors()
        to_fit = spec.parsed()
        with clock.step(f"fitting {len(to_fit)} configurations"):
            fitted = study.fitted(vectors)
            # before hours of writing
            for note in gain_notes([Configured(name, facts=one.facts) for name, one in fitted.items()]):
                announce(note)
        for line in spec.tuned():
            with clock.step(f"searching: {line.name}"):
                fitted[line.name] = study.tuned(line, wikitext, announce)
        training = {}
        if rivals := study.rivals():
            with clock.step(f"training the parts of {len(rivals)} rivals"):
                training = study.trained()
        with clock.step(
            f"writing {spec.prompt_count} prompts x {spec.samples} under {len(spec.configurations) + 1} configurations"
        ):
            written = study.written(fitted)
        with clock.step("measuring the cost of a token"):
            spent = study.spent(fitted, training)
        with clock.step("judging toxicity and fluency"):
            judged = study.judged(written)
        with clock.step("measuring collateral damage"):
            extra, nats = study.collateral(fitted, written, documents)
        with clock.step("computing intervals"):
            measures = measure(judged, reference=BASE, resamples=spec.resamples, seed=spec.seed)
        with clock.step("comparing scorers with archived scores"):
            agreed = agreements(spec, scorers, data_dir)
    words = [] if documents is None else documents.words_of_each
    configurations = configured(spec, judged, fitted, measures, extra, nats, words, written, spent)
    return ToxicityRecord(
        experiment="toxicity",
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        spec=plain_options(spec.to_dict()),
        data={
            **source_facts(texts.labelled),
            "counts": texts.labelled.counts,
            "cautions": list(texts.labelled.cautions),
        },
        model=model_facts(spec, fitted),
        prompts={
            **source_facts(texts.prompts),
            "count": len(texts.prompts),
            "samples": spec.samples,
            "tokens": spec.tokens,
            "toxicity": spec.prompt_toxicity,
        },
        scorers={
            key: {"name": s.name, "version": s.version, "digest": s.digest, **agreed.get(key, {})}
            for key, s in scorers.items()
        },
        fluency=fluency_facts(spec, study.fluency_prompts),
        wikitext=document_facts(documents, spec),
        environment={
            **environment(device=device, dtype=dtype),
            "threads": f"{len(pair)} computations at once, one thread each",
        },
        seconds={**clock.seconds, **writing_seconds(written)},
        configurations=configurations,
        examples=examples(spec, written),
        notes=(*([chosen] if chosen else []), *toxicity_notes(spec, configurations)),
    )


def _wikitext(choices: Choices, data_dir: str | os.PathLike[str] | None) -> Documents | None:
    """Return every document of WikiText where the study measures or limits their perplexity."""
    spec = choices.spec
    if spec.wikitext_documents == 0 and all(line.wikitext is None for line in spec.tuned()):
        return None
    try:
        return load_wikitext2(None if data_dir is None else Path(data_dir) / "wikitext2_raw")
    except (DataError, MissingExtraError) as error:
        choices.leave_out_wikitext(error)
        return None


def _measured(spec: ToxicitySpec, documents: Documents) -> Documents | None:
    """Return the documents whose perplexity is reported."""
    if spec.wikitext_documents == 0:
        return None
    return documents if spec.wikitext_documents < 0 else documents.first(spec.wikitext_documents)
