"""A family is one row of one table."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import SiteError
from repsurgery.lm.sites import families
from repsurgery.lm.sites.families import FAMILIES, Family
from tests.lm.folding import dense_map, hooked, logits, same
from tests.lm.tiny_models import CONTEXT, LAYERS, VOCABULARY, WIDTH

NEW = Family(
    stems=("model", ""),
    attention=("self_attn",),
    mlp=("mlp",),
    attention_writer=("self_attn.o_proj",),
    mlp_writer=("mlp.c_proj",),
    ends_in_sum=True,
)


@pytest.fixture
def newcomer():
    torch.manual_seed(0)
    config = transformers.Starcoder2Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.Starcoder2ForCausalLM(config).eval()


def test_one_row_makes_a_family_readable_steerable_and_foldable(newcomer, monkeypatch):
    with pytest.raises(SiteError, match="'starcoder2' is not in the table"):
        lm.site_names(newcomer)
    monkeypatch.setattr(families, "FAMILIES", {**FAMILIES, "starcoder2": NEW})
    assert len(lm.site_names(newcomer)) == 2 + 3 * LAYERS
    inner = [f"layers.{i}.{part}" for i in range(LAYERS) for part in ("attn", "mlp")]
    assert lm.foldable_sites(newcomer) == [*inner, "final"]
    base, shift = logits(newcomer), rs.Translation(np.arange(WIDTH, dtype=float))
    for site, m in [*((site, dense_map(WIDTH)) for site in (*inner, "final")), ("layers.0", shift)]:
        steered = hooked(newcomer, site, m)
        assert not same(steered, base)
        assert same(logits(lm.fold(newcomer, m, site)), steered)


def test_no_other_file_names_a_family():
    room = Path(lm.__file__).parent
    for path in room.rglob("*.py"):
        strings = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        # in a GGUF, "llama" is a kind of tokenizer
        assert path.name in ("families.py", "convert.py") or not strings & set(FAMILIES), path
