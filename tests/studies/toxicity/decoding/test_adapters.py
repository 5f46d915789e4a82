"""Adapters on one model: several in a batch give what each gives alone, in every family."""

import pytest
import torch

from repsurgery.studies.toxicity.decoding.adapters import BASE_ROWS, adapted_rows, adapter_parameters, with_adapters
from tests.lm.tiny_models import DECODERS, tiny_model


def with_two(model):
    """Return the model with two adapters that differ from each other and from nothing."""
    adapted = with_adapters(model, {"one": None, "two": None})
    torch.manual_seed(1)
    for name in ("one", "two"):
        for parameter in adapter_parameters(adapted, name).values():
            parameter.data.normal_(std=0.3)
    return adapted


@pytest.mark.filterwarnings("ignore:.*ParamWrapper.*", "ignore:.*target_parameters.*")
@pytest.mark.parametrize("family", DECODERS)
def test_rows_of_several_adapters_are_those_of_each_alone(family):
    model = tiny_model(family)
    ids = torch.tensor([[0, 5, 6, 7], [8, 9, 10, 11], [0, 0, 12, 13]])
    mask = (ids != 0).long()
    tokens = torch.tensor([5, 6, 7])
    names = ["one", BASE_ROWS, "two"]
    with torch.no_grad():
        adapted = with_two(model)
        together = adapted_rows(adapted, [name for name in names for _ in ids])
        logits = [together.read(ids.repeat(3, 1), mask.repeat(3, 1)), together.step(tokens.repeat(3))]
        for number, name in enumerate(names):
            rows = slice(3 * number, 3 * number + 3)
            if name != BASE_ROWS:
                adapted.set_adapter(name)
            for i in range(3):
                kept = ids[i][mask[i] == 1]
                texts = [kept, torch.cat([kept, tokens[i : i + 1]])]
                for whole, text in zip(logits, texts, strict=True):
                    one = tiny_model(family) if name == BASE_ROWS else adapted
                    alone = one(input_ids=text[None]).logits[0, -1]
                    torch.testing.assert_close(whole[rows][i], alone, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(logits[0][:3], logits[0][3:6], atol=1e-2)
