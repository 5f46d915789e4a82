"""Where each model family keeps its residual stream: module paths as data, and no forward pass.

The columns are paths of modules; where several are given, the first that exists is the one. ``attention`` and
``mlp`` name the module whose output is added to the residual stream, **before** any norm that a family puts between
it and the sum (Gemma 2 and 3) and before the sum itself (the post-norm encoders). ``attention_writer`` and
``mlp_writer`` name the linear layer that computes exactly that output: the one weight a map there can be folded into.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["ARCHITECTURES", "HALVES", "Architecture"]

Paths = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Architecture:
    """Module paths of one layout.

    Attributes
    ----------
    stems : paths of the module that owns the blocks, from the top; "" is the model itself
    blocks : path of the list of blocks, from the stem
    final : paths, from the stem, of what the output layer reads; "" is the output of the last block
    attention, mlp : paths, from a block, of what is added to the residual stream
    attention_writer, mlp_writer : paths, from a block, of the linear layer behind it; none where there is no single one
    """

    stems: Paths
    blocks: str
    final: Paths
    attention: Paths
    mlp: Paths
    attention_writer: Paths
    mlp_writer: Paths


_LLAMA = Architecture(
    stems=("model", "model.language_model", "language_model", ""),
    blocks="layers",
    final=("norm",),
    attention=("self_attn",),
    mlp=("mlp",),
    attention_writer=("self_attn.o_proj",),
    mlp_writer=("mlp.down_proj",),
)
_MIXTURE = Architecture(
    stems=_LLAMA.stems,
    blocks="layers",
    final=("norm",),
    attention=("self_attn",),
    mlp=("mlp", "block_sparse_moe"),
    attention_writer=("self_attn.o_proj",),
    mlp_writer=(),  # every expert writes its own share
)
_GPT2 = Architecture(
    stems=("transformer", ""),
    blocks="h",
    final=("ln_f",),
    attention=("attn",),
    mlp=("mlp",),
    attention_writer=("attn.c_proj",),
    mlp_writer=("mlp.c_proj",),
)
_NEOX = Architecture(
    stems=("gpt_neox", ""),
    blocks="layers",
    final=("final_layer_norm",),
    attention=("attention",),
    mlp=("mlp",),
    attention_writer=("attention.dense",),
    mlp_writer=("mlp.dense_4h_to_h",),
)
_OPT = Architecture(
    stems=("model.decoder", "decoder", ""),
    blocks="layers",
    # the 350m model has no last norm and projects down to the embedding width instead
    final=("project_out", "final_layer_norm", ""),
    attention=("self_attn",),
    mlp=("fc2",),
    attention_writer=("self_attn.out_proj",),
    mlp_writer=("fc2",),
)
_PHI = Architecture(
    stems=("model", ""),
    blocks="layers",
    final=("final_layernorm",),
    attention=("self_attn",),
    mlp=("mlp",),
    attention_writer=("self_attn.dense",),
    mlp_writer=("mlp.fc2",),
)
_FALCON = Architecture(
    stems=("transformer", ""),
    blocks="h",
    final=("ln_f",),
    attention=("self_attention",),
    mlp=("mlp",),
    attention_writer=("self_attention.dense",),
    mlp_writer=("mlp.dense_4h_to_h",),
)
_BERT = Architecture(
    stems=("bert", "roberta", ""),
    blocks="encoder.layer",
    final=("",),
    attention=("attention.output.dense",),
    mlp=("output.dense",),
    attention_writer=("attention.output.dense",),
    mlp_writer=("output.dense",),
)

_MAMBA = Architecture(
    stems=("backbone", ""),
    blocks="layers",
    final=("norm_f",),
    attention=("mixer",),
    mlp=(),
    attention_writer=("mixer.out_proj",),
    mlp_writer=(),
)
_RWKV = Architecture(
    stems=("rwkv", ""),
    blocks="blocks",
    final=("ln_out",),
    attention=("attention",),
    mlp=("feed_forward",),
    attention_writer=("attention.output",),
    mlp_writer=(),
)


def _t5(half: str, feed_forward: str) -> Architecture:
    return Architecture(
        stems=(half,),
        blocks="block",
        final=("final_layer_norm",),
        attention=("layer.0.SelfAttention",),
        mlp=(f"{feed_forward}.DenseReluDense",),
        attention_writer=("layer.0.SelfAttention.o",),
        mlp_writer=(f"{feed_forward}.DenseReluDense.wo",),
    )


def _bart(half: str) -> Architecture:
    return Architecture(
        stems=(f"model.{half}", half),
        blocks="layers",
        # mBART ends in a norm, BART in its last block
        final=("layer_norm", ""),
        attention=("self_attn",),
        mlp=("fc2",),
        attention_writer=("self_attn.out_proj",),
        mlp_writer=("fc2",),
    )


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "bert": _BERT,
        "falcon": _FALCON,
        "gemma": _LLAMA,
        "gemma2": _LLAMA,
        "gemma3": _LLAMA,
        "gemma3_text": _LLAMA,
        "gpt2": _GPT2,
        "gpt_neox": _NEOX,
        "llama": _LLAMA,
        "mamba": _MAMBA,
        "mamba2": _MAMBA,
        "mistral": _LLAMA,
        "mixtral": _MIXTURE,
        "opt": _OPT,
        "phi": _PHI,
        "phi3": _LLAMA,
        "qwen2": _LLAMA,
        "qwen2_moe": _MIXTURE,
        "qwen3": _LLAMA,
        "qwen3_moe": _MIXTURE,
        "roberta": _BERT,
        "rwkv": _RWKV,
    }
)
"""``config.model_type`` to layout."""

_T5_HALVES = {"encoder": _t5("encoder", "layer.1"), "decoder": _t5("decoder", "layer.2")}
_BART_HALVES = {"encoder": _bart("encoder"), "decoder": _bart("decoder")}

HALVES: Mapping[str, Mapping[str, Architecture]] = MappingProxyType(
    {"bart": _BART_HALVES, "mbart": _BART_HALVES, "mt5": _T5_HALVES, "t5": _T5_HALVES}
)
"""``config.model_type`` of an encoder-decoder to the layout of each half."""
