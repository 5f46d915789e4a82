import pytest
import torch
from torch import nn

from repsurgery.errors import SiteError
from repsurgery.lm import resolve_site, site_names
from tests.lm.tiny_models import DECODERS, FAMILIES, LAYERS, tiny_model
from tests.lm.tools import prompts, states

every_family = pytest.mark.parametrize("family", list(FAMILIES))


@every_family
def test_the_residual_stream_is_what_the_model_calls_its_hidden_states(family):
    model = tiny_model(family)
    ids, mask = prompts("right")
    inputs = {"input_ids": ids, "attention_mask": mask}
    positions = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if family in DECODERS else {}
    with torch.no_grad():
        found = model(**inputs, **positions, output_hidden_states=True).hidden_states
    real = mask.bool()
    assert torch.equal(states(model, "embeddings", ids, mask)[real], found[0][real])
    assert torch.equal(states(model, "layers.0", ids, mask)[real], found[1][real])
    assert not torch.equal(found[0][real], found[1][real])


@every_family
def test_the_output_layer_reads_the_final_site(family):
    model = tiny_model(family)
    ids, mask = prompts("right")
    head = model.get_output_embeddings()
    seen = []
    handle = (head if family in DECODERS else first_of_head(model)).register_forward_pre_hook(
        lambda module, args: seen.append(args[0])
    )
    final = states(model, "final", ids, mask)
    handle.remove()
    assert torch.equal(seen[0], final)


def first_of_head(model):
    return model.cls.predictions.transform.dense if model.config.model_type == "bert" else model.lm_head.dense


@every_family
def test_a_model_without_its_output_layer_has_the_same_sites(family):
    model = tiny_model(family)
    base = model.base_model
    for name in site_names(model):
        assert resolve_site(base, name).module is resolve_site(model, name).module


@every_family
def test_sites_are_listed_from_the_embeddings_to_the_end(family):
    names = site_names(tiny_model(family))
    assert names[0] == "embeddings" and names[-1] == "final"
    assert len(names) == 2 + 3 * LAYERS


def test_a_module_path_names_its_output():
    model = tiny_model("llama")
    site = resolve_site(model, "model.layers.1.mlp.down_proj")
    assert site.module is model.model.layers[1].mlp.down_proj
    assert site.writer == "model.layers.1.mlp.down_proj"
    assert site.width is None


def test_a_block_beyond_the_last_is_refused_with_the_range():
    with pytest.raises(SiteError, match=r"2 blocks, 'layers\.0' to 'layers\.1'"):
        resolve_site(tiny_model("llama"), "layers.2")


@pytest.mark.parametrize("name", ["middle", "layers.one", "", "model.nothing"])
def test_an_unknown_name_is_refused_with_what_was_found(name):
    with pytest.raises(SiteError, match=r"model\.layers \(2 modules\).*named_modules"):
        resolve_site(tiny_model("llama"), name)


def test_an_unknown_architecture_needs_a_module_path():
    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList([nn.Linear(2, 2)])

    with pytest.raises(SiteError, match=r"not in the table.*stages \(1 modules\)"):
        resolve_site(Strange(), "final")
    with pytest.raises(SiteError, match="not in the table"):
        site_names(Strange())
    assert resolve_site(Strange(), "stages.0").path == "stages.0"
