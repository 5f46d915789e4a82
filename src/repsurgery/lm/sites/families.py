"""The table of model families: one row per ``config.model_type``, with the paths and switches of its modules.

A row gives the paths of modules, the layers into which a map can be folded, the switches that add biases, and the
family's exceptions. Adding a family means adding one row to `FAMILIES`. Names of caches (`lm.steer.passes`) and
linear layers that store their weights as (in, out) (`is_conv1d`) are recognised without the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

__all__ = ["FAMILIES", "UNLISTED", "Family", "Paths", "family_named", "family_of", "text_config"]

Paths = tuple[str, ...]
"""Alternatives: the first path that exists in a model is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table; a column that does not apply to a family is empty.

    Attributes
    ----------
    stems : paths, from the model, of the module that owns the blocks
        "" is the model itself. In an encoder-decoder, ``{half}`` stands for "encoder" or "decoder".
    blocks : path, from the stem, of the list of blocks
    final : paths, from the stem, of the module whose output enters the output layer
        "" is the last block.
    projection : path, from the stem, of a linear layer that may stand between ``final`` and the output layer
    attention, mlp : paths, from a block, of the module whose output is added to the residual stream
        Before any norm between that module and the sum (Gemma 2 and 3), and before the sum itself (post-norm encoders).
    attention_writer, mlp_writer : paths, from a block, of the linear layer that computes exactly that output
        It is the one weight into which a map there can be folded; empty where no single layer computes the output.
    mlp_reader : path, from a block, of the module that reads the MLP's input where ``mlp`` is only its last layer
    encoder_decoder : whether the family has two stacks of blocks, an encoder and a decoder
    ends_in_sum : whether a block ends in residual stream + MLP output, with nothing after the sum
    block_norm : path, from a block, of a LayerNorm in which the block may end, after that sum
    pre_norm_switch : option of the configuration that, when true, moves ``block_norm`` before the sum
    head_readers : paths, from the head, of the one layer that reads the final state
        "" is the head itself.
    bias_switches : options of the configuration that do nothing but give linear layers a bias
    logit_cap : option of the configuration that bounds the logits c as cap · tanh(c / cap)
    """

    stems: Paths = ()
    blocks: str = "layers"
    final: Paths = ("norm",)
    projection: str = ""
    attention: Paths = ()
    mlp: Paths = ()
    attention_writer: Paths = ()
    mlp_writer: Paths = ()
    mlp_reader: str = ""
    encoder_decoder: bool = False
    ends_in_sum: bool = False
    block_norm: str = ""
    pre_norm_switch: str = ""
    head_readers: Paths = ("",)
    bias_switches: tuple[str, ...] = ("attention_bias", "mlp_bias")
    logit_cap: str = "final_logit_softcapping"


_LLAMA = Family(
    stems=("model", "model.language_model", "language_model", ""),
    attention=("self_attn",),
    mlp=("mlp",),
    attention_writer=("self_attn.o_proj",),
    mlp_writer=("mlp.down_proj",),
    ends_in_sum=True,
)
_GEMMA_2 = replace(_LLAMA, ends_in_sum=False)  # a norm stands between the MLP and the sum
_MIXTURE = replace(_LLAMA, mlp=("mlp", "block_sparse_moe"), mlp_writer=())  # each expert writes a share of the output
_BERT = Family(
    stems=("bert", "roberta", ""),
    blocks="encoder.layer",
    final=("",),
    attention=("attention.output.dense",),
    mlp=("output.dense",),
    attention_writer=("attention.output.dense",),
    mlp_writer=("output.dense",),
    mlp_reader="intermediate.dense",
    block_norm="output.LayerNorm",
    head_readers=("", "predictions.transform.dense", "dense"),
)
_MPNET = replace(_BERT, stems=("mpnet", ""), attention=("attention.attn.o",), attention_writer=("attention.attn.o",))
_BART = Family(
    stems=("model.{half}", "{half}"),
    final=("layer_norm", ""),  # mBART ends in a norm, BART in its last block
    attention=("self_attn",),
    mlp=("fc2",),
    attention_writer=("self_attn.out_proj",),
    mlp_writer=("fc2",),
    mlp_reader="fc1",
    encoder_decoder=True,
)
_T5 = Family(
    stems=("{half}",),
    blocks="block",
    final=("final_layer_norm",),
    attention=("layer.0.SelfAttention",),
    mlp=("layer.2.DenseReluDense", "layer.1.DenseReluDense"),  # cross-attention is layer.1 of a decoder block
    attention_writer=("layer.0.SelfAttention.o",),
    mlp_writer=("layer.2.DenseReluDense.wo", "layer.1.DenseReluDense.wo"),
    encoder_decoder=True,
)
_MAMBA = Family(
    stems=("backbone", ""),
    final=("norm_f",),
    attention=("mixer",),
    attention_writer=("mixer.out_proj",),
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "bart": _BART,
        "bert": _BERT,
        "falcon": Family(
            stems=("transformer", ""),
            blocks="h",
            final=("ln_f",),
            attention=("self_attention",),
            mlp=("mlp",),
            attention_writer=("self_attention.dense",),
            mlp_writer=("mlp.dense_4h_to_h",),
            ends_in_sum=True,
            bias_switches=("bias",),
        ),
        "gemma": _LLAMA,
        "gemma2": _GEMMA_2,
        "gemma3": _GEMMA_2,
        "gemma3_text": _GEMMA_2,
        "gpt2": Family(
            stems=("transformer", ""),
            blocks="h",
            final=("ln_f",),
            attention=("attn",),
            mlp=("mlp",),
            attention_writer=("attn.c_proj",),
            mlp_writer=("mlp.c_proj",),
            ends_in_sum=True,
        ),
        "gpt_neox": Family(
            stems=("gpt_neox", ""),
            final=("final_layer_norm",),
            attention=("attention",),
            mlp=("mlp",),
            attention_writer=("attention.dense",),
            mlp_writer=("mlp.dense_4h_to_h",),
            ends_in_sum=True,
        ),
        "llama": _LLAMA,
        "mamba": _MAMBA,
        "mamba2": _MAMBA,
        "mbart": _BART,
        "mistral": _LLAMA,
        "mixtral": _MIXTURE,
        "mpnet": _MPNET,
        "mt5": _T5,
        "opt": Family(
            stems=("model.decoder", "decoder", ""),
            # the 350m model is post-norm: it has no last norm and projects down to the width of the embeddings
            final=("final_layer_norm", ""),
            projection="project_out",
            attention=("self_attn",),
            mlp=("fc2",),
            attention_writer=("self_attn.out_proj",),
            mlp_writer=("fc2",),
            mlp_reader="fc1",
            ends_in_sum=True,
            block_norm="final_layer_norm",
            pre_norm_switch="do_layer_norm_before",
            bias_switches=("enable_bias",),
        ),
        "phi": Family(
            stems=("model", ""),
            final=("final_layernorm",),
            attention=("self_attn",),
            mlp=("mlp",),
            attention_writer=("self_attn.dense",),
            mlp_writer=("mlp.fc2",),
            ends_in_sum=True,
        ),
        "phi3": _LLAMA,
        "qwen2": _LLAMA,
        "qwen2_moe": _MIXTURE,
        "qwen3": _LLAMA,
        "qwen3_moe": _MIXTURE,
        "roberta": _BERT,
        "rwkv": Family(
            stems=("rwkv", ""),
            blocks="blocks",
            final=("ln_out",),
            attention=("attention",),
            mlp=("feed_forward",),
            attention_writer=("attention.output",),
        ),
        "t5": _T5,
    }
)
"""``config.model_type`` to row."""

UNLISTED = Family()
"""The row of a model that is not in the table: it has no named sites, and every other column has its usual value."""


def family_named(model_type: str) -> Family:
    """Return the row of ``model_type``; `UNLISTED` where the table has none."""
    return FAMILIES.get(model_type, UNLISTED)


def family_of(model: Any) -> Family:
    """Return the row of ``model``, by the ``model_type`` of its configuration."""
    return family_named(getattr(getattr(model, "config", None), "model_type", ""))


def text_config(model: Any) -> Any:
    """Return the configuration of the language model inside ``model``; None where it has none."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config
