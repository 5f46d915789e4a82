"""Two-layer random models, one per family, and a tiny tokenizer: seeded, float32, without network."""

from dataclasses import dataclass
from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WIDTH = 16
LAYERS = 2
CONTEXT = 64
WORDS = [f"w{i}" for i in range(40)]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
VOCABULARY = len(SPECIAL) + len(WORDS)

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # the usual 0.02 leaves tiny models with all but constant outputs
    "initializer_range": 0.3,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 1}
_HEADED = {**_GROUPED, "head_dim": 8}


@dataclass(frozen=True)
class Family:
    """A family's configuration, its model class, whether it decodes, and whether its MLP is a mixture of experts."""

    config: str
    model: str
    options: dict
    decodes: bool = True
    mixture: bool = False


FAMILIES = {
    "gpt2": Family(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": 2,
            "n_positions": CONTEXT,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "initializer_range": 0.3,
        },
    ),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", _COMMON),
    "opt": Family(
        "OPTConfig", "OPTForCausalLM", {**_COMMON, "ffn_dim": 32, "word_embed_proj_dim": WIDTH, "init_std": 0.3}
    ),
    "opt_350m": Family(
        "OPTConfig",
        "OPTForCausalLM",
        {**_COMMON, "ffn_dim": 32, "word_embed_proj_dim": 8, "do_layer_norm_before": False, "init_std": 0.3},
    ),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "mistral": Family("MistralConfig", "MistralForCausalLM", {**_GROUPED, "sliding_window": 6}),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", _GROUPED),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", _HEADED),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", {**_HEADED, "sliding_window": 6, "query_pre_attn_scalar": 8}),
    "gemma3": Family(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **_HEADED,
            "sliding_window": 6,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "phi": Family("PhiConfig", "PhiForCausalLM", _COMMON),
    "falcon": Family("FalconConfig", "FalconForCausalLM", {**_COMMON, "alibi": False}),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", {**_GROUPED, "num_local_experts": 3}, mixture=True),
    "qwen2_moe": Family(
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {
            **_GROUPED,
            "num_experts": 3,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
        mixture=True,
    ),
    "bert": Family("BertConfig", "BertForMaskedLM", _COMMON, decodes=False),
    "roberta": Family("RobertaConfig", "RobertaForMaskedLM", _COMMON, decodes=False),
    "mpnet": Family("MPNetConfig", "MPNetForMaskedLM", _COMMON, decodes=False),
}
DECODERS = [name for name, family in FAMILIES.items() if family.decodes]
MIXTURES = [name for name, family in FAMILIES.items() if family.mixture]


def tiny_model(family, *, seed=0, dtype=torch.float32, **changes):
    """Return a fresh random model of ``family`` in evaluation mode."""
    spec = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, spec.config)(**{**spec.options, **changes})
    model = getattr(transformers, spec.model)(config)
    # norms start as the identity and biases at zero; a test should notice when they are left out
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


@cache
def tokenizer_backend():
    """Return a word tokenizer that puts <s> before every text."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return backend


def tiny_tokenizer(*, pad="<pad>", padding_side="right"):
    """Return a transformers tokenizer over `WORDS`."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_backend().to_str()),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token=pad,
        padding_side=padding_side,
        model_max_length=CONTEXT,
    )


def texts(n, *, seed=0, longest=9):
    """Return ``n`` texts of one to ``longest`` words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator).tolist()
    draw = [torch.randint(len(WORDS), (length,), generator=generator).tolist() for length in lengths]
    return [" ".join(WORDS[i] for i in row) for row in draw]
