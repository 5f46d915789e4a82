import os
import signal

import numpy as np
import pytest
import torch

from repsurgery import lm
from repsurgery.checkpoint import uninterrupted
from repsurgery.errors import BatchHalvedWarning, CacheWarning, NonFiniteError, ParameterError, SiteError
from repsurgery.files import Contents, read_file, write_file
from tests.lm.tiny_models import texts, tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close, random_map, states

SOME = texts(9, seed=1)


def one_by_one(model, tokenizer, site):
    """Return the states of each text alone, (length, d)."""
    ids = [torch.tensor([tokenizer(text)["input_ids"]]) for text in SOME]
    return [states(model, site, row, torch.ones_like(row))[0].numpy() for row in ids]


@pytest.mark.parametrize("pooling", ["last", "cls", "mean"])
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_pooling_is_what_it_says(model, tokenizer, pooling, site):
    rows = lm.extract(model, tokenizer, SOME, site=site, pooling=pooling, batch_size=4, progress=False)
    pick = {"last": lambda h: h[-1], "cls": lambda h: h[0], "mean": lambda h: h.mean(axis=0)}[pooling]
    assert rows.dtype == np.float32
    assert_close(rows, [pick(h) for h in one_by_one(model, tokenizer, site)], rtol=DEPTH)


def test_the_output_layer_is_not_run(model, tokenizer):
    ran = []
    model.lm_head.register_forward_hook(lambda *_: ran.append(1))
    lm.extract(model, tokenizer, SOME, progress=False)
    assert ran == []
    lm.extract(model, tokenizer, SOME, site="lm_head", progress=False)
    assert ran


def test_reading_under_steer_reads_steered_states(model, tokenizer, tmp_path):
    m = random_map()
    plain = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    with lm.steer(model, {"final": m}):
        steered = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    assert_close(steered, m(plain), rtol=DEPTH)
    assert not np.allclose(steered, plain)


class Interrupting:
    """Count the passes a model makes, and break off at one of them."""

    def __init__(self, model, stop):
        self.passes, self._stop = 0, stop
        self._handle = model.model.register_forward_pre_hook(self._count)

    def _count(self, module, args):
        self.passes += 1
        if self.passes == self._stop:
            raise KeyboardInterrupt

    def remove(self):
        self._handle.remove()


def test_an_interrupted_extraction_goes_on_where_it_stopped(model, tokenizer, tmp_path):
    expected = lm.extract(model, tokenizer, SOME, batch_size=2, progress=False)
    passes = Interrupting(model, stop=4)
    with pytest.raises(KeyboardInterrupt):
        lm.extract(model, tokenizer, SOME, batch_size=2, progress=False, work_dir=tmp_path)
    passes.remove()
    assert not any(m._forward_hooks for m in model.modules())
    passes = Interrupting(model, stop=None)
    rows = lm.extract(model, tokenizer, SOME, batch_size=2, progress=False, work_dir=tmp_path)
    assert passes.passes == 5 - 3  # nine texts make five batches, of which three were done
    assert_close(rows, expected, rtol=DEPTH)
    lm.extract(model, tokenizer, SOME, batch_size=3, progress=False, work_dir=tmp_path)
    assert passes.passes == 2


def test_a_damaged_work_file_is_read_anew(model, tokenizer, tmp_path):
    expected = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    [path] = tmp_path.rglob("rows-*.safetensors")
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.warns(CacheWarning, match="read anew"):
        rows = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    assert np.array_equal(rows, expected)
    again = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)  # and now without a warning
    assert np.array_equal(again, expected)


@pytest.mark.parametrize(
    "forged",
    [
        {"index": None},
        {"rows": None},
        {"index": np.array([10**6])},
        {"index": np.array([-1])},
        {"index": np.array([0.0])},
        {"rows": np.zeros((1, 3), dtype=np.float32)},
        {"rows": np.zeros((1, 2, 3))},
    ],
)
def test_a_forged_work_file_is_read_anew(model, tokenizer, tmp_path, forged):
    expected = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    [path] = tmp_path.rglob("rows-*.safetensors")
    held = read_file(path)
    arrays = {name: array for name, array in {**held.arrays, **forged}.items() if array is not None}
    write_file(path, Contents(held.kind, held.header, arrays))
    with pytest.warns(CacheWarning, match="read anew"):
        rows = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    assert np.array_equal(rows, expected)


def test_another_job_never_takes_over_old_results(model, tokenizer, tmp_path):
    first = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path)
    changed = {
        "site": {"site": "layers.0"},
        "pooling": {"pooling": "mean"},
        "length": {"max_length": 2},
    }
    for options in changed.values():
        fresh = lm.extract(model, tokenizer, SOME, progress=False, **options)
        kept = lm.extract(model, tokenizer, SOME, progress=False, work_dir=tmp_path, **options)
        assert np.array_equal(fresh, kept) and not np.array_equal(kept, first)
    other = tiny_model("llama", seed=1)
    assert not np.array_equal(lm.extract(other, tokenizer, SOME, progress=False, work_dir=tmp_path), first)


@pytest.fixture
def hearing_ctrl_c():
    """A shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_results_are_taken_in(hearing_ctrl_c):
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117 - the order is the point
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("after the signal")
    assert steps == ["after the signal"]


def test_a_batch_beyond_memory_is_halved(model, tokenizer):
    expected = lm.extract(model, tokenizer, SOME, progress=False)

    def full(module, args, kwargs):
        if len(kwargs["input_ids"]) > 3:
            raise torch.OutOfMemoryError("out of memory")

    model.model.register_forward_pre_hook(full, with_kwargs=True)
    with pytest.warns(BatchHalvedWarning, match="batch_size="):
        rows = lm.extract(model, tokenizer, SOME, progress=False)
    assert_close(rows, expected, rtol=DEPTH)


def test_tokenizer_and_model_are_left_alone(model):
    tokenizer = tiny_tokenizer(pad=None, padding_side="left")
    before = tokenizer(SOME)["input_ids"]
    lm.extract(model, tokenizer, SOME, max_length=3, progress=False)
    assert tokenizer.pad_token is None and tokenizer.padding_side == "left"
    assert tokenizer(SOME)["input_ids"] == before and max(map(len, before)) > 3
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_progress_bar_is_shown(model, tokenizer, capsys, monkeypatch):
    monkeypatch.setattr("repsurgery.progress.LOG_SECONDS", 0.0)  # in a log, short jobs say nothing
    lm.extract(model, tokenizer, SOME)
    assert "reading final" in capsys.readouterr().err
    lm.extract(model, tokenizer, SOME, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_settings_are_refused(model, tokenizer):
    with pytest.raises(ParameterError, match="'last', 'cls', 'mean'"):
        lm.extract(model, tokenizer, SOME, pooling="all", progress=False)
    with pytest.raises(SiteError, match="named_modules"):
        lm.extract(model, tokenizer, SOME, site="nowhere", progress=False)


def test_states_that_are_not_finite_are_refused(model, tokenizer):
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(NonFiniteError, match="'final' holds NaN"):
        lm.extract(model, tokenizer, SOME, progress=False)
