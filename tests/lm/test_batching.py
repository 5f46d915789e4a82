import pytest
import torch

from repsurgery.errors import BatchHalvedWarning
from repsurgery.lm.batching import evaluating, run_batches
from tests.lm.tiny_models import tiny_model


def memory_for(size, error):
    done = []

    def run(batch):
        if len(batch) > size:
            raise error
        done.extend(batch)

    return run, done


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 9 bytes"), MemoryError()],
    ids=["device", "host", "python"],
)
def test_a_batch_beyond_memory_is_halved_and_nothing_is_lost(error):
    run, done = memory_for(2, error)
    with pytest.warns(BatchHalvedWarning, match="does not fit") as warned:
        run_batches([[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]], run, progress=False, label="test")
    assert done == list(range(12))
    assert len(warned) == 2  # 8 to 4, 4 to 2; the later batch starts at 2


def test_one_item_beyond_memory_is_an_error():
    run, _ = memory_for(0, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        run_batches([[0]], run, progress=False, label="test")


def test_other_errors_are_not_taken_for_memory():
    run, _ = memory_for(0, RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run_batches([[0, 1]], run, progress=False, label="test")


def test_a_model_in_training_is_evaluated_and_goes_back_to_training():
    model = tiny_model("gpt2")
    model.transformer.h.train()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert not model.training and not model.transformer.drop.training
    assert model.transformer.h.training and model.transformer.h[0].attn.training
    assert torch.is_grad_enabled()
