"""Load a model and its tokenizer from the hub, a folder, or packages."""

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch

from repsurgery.errors import ModelError, ParameterError
from repsurgery.lm.load.wheel import EMBEDDED, embedded_config, embedded_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["DEFAULT_MODEL", "DTYPES", "check_loading", "empty_model", "load", "read_config"]

DEFAULT_MODEL = "smollm2-135m"
DTYPES = ("float32", "bfloat16", "float16", "float64")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_OFFLINE = "Without network, pass the folder of a downloaded model or an embedded name: " + ", ".join(
    f"'{name}'" for name in EMBEDDED
)


def load(
    name: str | os.PathLike[str] = DEFAULT_MODEL,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    revision: str | None = None,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return a model in eval mode and its tokenizer.

    Parameters
    ----------
    name : str or path
        An embedded name, a folder written by ``save_pretrained``, or a hub id. The embedded names are "smollm2-135m"
        and "minilm", in one package each; "gemma-3-270m" (under the Gemma Terms of Use, which are not an open-source
        licence), "tinyllama-1.1b", "qwen2.5-coder-1.5b" and "all-mpnet-base-v2", in several. An embedded name takes
        precedence over a folder of the same name; write "./minilm" for the folder.
    dtype : {"float32", "bfloat16", "float16", "float64"}, torch.dtype or None
        None keeps the dtype in which the weights were saved.
    device : str, torch.device or None
        None is the CPU; "auto" lets accelerate distribute the layers over the available devices.
    revision : str or None
        Branch, tag or commit; for hub ids only.

    Returns
    -------
    model : PreTrainedModel
        With its output layer where the configuration names a causal language model, without it for encoders.
    tokenizer : PreTrainedTokenizerBase
        Without a padding token of its own it pads with the end-of-text token; padding is masked, so any token serves.

    Raises
    ------
    ModelError
        The model is not found, not reachable, damaged, incomplete (weights would stay random), needs custom code, or
        has no tokenizer.
    MissingExtraError
        Packages of an embedded model are not installed; the message contains the command that installs them.
    """
    options = check_loading(device, dtype)
    source, where = _resolve(name, revision)
    with _reading(name, source):
        model = _read_model(str(source), {**where, "trust_remote_code": False}, options)
        tokenizer = _read_tokenizer(str(source), {**where, "trust_remote_code": False})
    return model.eval(), tokenizer


def read_config(name: str | os.PathLike[str], revision: str | None = None) -> tuple[Any, Path | None]:
    """Return the configuration of a model of `load`, and its folder; None for a hub id."""
    from transformers import AutoConfig

    source, where = _resolve(name, revision, embedded=embedded_config)
    with _reading(name, source):
        config = AutoConfig.from_pretrained(str(source), **where, trust_remote_code=False)
    return config, source if isinstance(source, Path) else None


def empty_model(config: Any) -> "PreTrainedModel":
    """Return the model that `load` makes for a configuration, on the device "meta": shapes without numbers."""
    with torch.device("meta"):
        model: PreTrainedModel = _auto_class(config).from_config(config, trust_remote_code=False)
    return model.eval()


@contextmanager
def _reading(name: str | os.PathLike[str], source: Path | str) -> Iterator[None]:
    """Raise a `ModelError` with a remedy for whatever goes wrong while a model is read."""
    try:
        yield
    except ModelError:
        raise
    except _reading_errors() as error:
        reason = " ".join(str(error).split())
        remedy = "Write the folder again with save_pretrained." if isinstance(source, Path) else f"{_OFFLINE}."
        raise ModelError(f"'{name}' cannot be loaded: {reason} {remedy}") from error


def _resolve(
    name: str | os.PathLike[str], revision: str | None, *, embedded: Callable[[str], Path] = embedded_folder
) -> tuple[Path | str, dict[str, Any]]:
    """Return a folder or hub id, and the arguments that tell transformers where to search for it."""
    text = os.fspath(name)
    folder = Path(text).expanduser()
    is_embedded = text in EMBEDDED
    if revision is not None and (is_embedded or folder.exists()):
        raise ParameterError(f"revision={revision!r} is for hub ids, and '{text}' is not one. Omit it.")
    if is_embedded:
        return embedded(text), {"local_files_only": True}
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            files = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
            raise ModelError(
                f"{folder} has no config.json; it contains: {files}. Pass a folder written by save_pretrained."
            )
        return folder, {"local_files_only": True}
    if folder.exists():
        raise ModelError(f"{folder} is a file. Pass the folder that save_pretrained wrote.")
    if isinstance(name, os.PathLike) or not _HUB_ID.fullmatch(text):
        raise ModelError(f"There is no folder '{text}', and it is not a hub id ('owner/name'). {_OFFLINE}.")
    return text, {"revision": revision, **({} if _hub_is_known() else {"local_files_only": True})}


def _hub_is_known() -> bool:
    """Return whether the name of the hub resolves; without network, asking it takes half a minute of retries."""
    if getproxies():  # which resolve names themselves
        return True
    try:
        socket.getaddrinfo(urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname, None)
    except OSError:
        return False
    return True


def _read_model(source: str, where: dict[str, Any], options: dict[str, Any]) -> "PreTrainedModel":
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(source, **where)
    model, report = _auto_class(config).from_pretrained(
        source, config=config, output_loading_info=True, **where, **options
    )
    # a checkpoint saved with another head has no pooler, which is not used here
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key.split("."))
    if missing:
        raise ModelError(
            f"'{source}' lacks {len(missing)} weights of {type(model).__name__}, which would stay random: "
            f"{', '.join(missing[:3])}. Download or save it again."
        )
    return model


def _auto_class(config: Any) -> Any:
    from transformers import AutoModel, AutoModelForCausalLM

    if config.is_encoder_decoder:
        raise ModelError(
            f"'{config.name_or_path}' is an encoder-decoder ({config.model_type}). Pass a decoder or an encoder."
        )
    return AutoModelForCausalLM if _is_causal(config) else AutoModel


def _is_causal(config: Any) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    causal = {name for names in CAUSAL.values() for name in ([names] if isinstance(names, str) else names)}
    return any(name in causal or name.endswith("ForCausalLM") for name in config.architectures or [])


def _read_tokenizer(source: str, where: dict[str, Any]) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    remedy = "Save it beside the model: tokenizer.save_pretrained(folder)."
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **where)
    except _reading_errors() as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"'{source}' contains no readable tokenizer: {reason} {remedy}") from error
    # for some families, a folder without tokenizer files loads as a tokenizer with special tokens only
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ModelError(f"'{source}' contains no tokenizer, only the model. {remedy}")
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _reading_errors() -> tuple[type[Exception], ...]:
    from safetensors import SafetensorError

    return (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)


def check_loading(device: Any, dtype: Any) -> dict[str, Any]:
    """Return the options of transformers for a device and a dtype of `load`, or raise a `ParameterError`."""
    return {"dtype": _check_dtype(dtype), "device_map": _check_device(device)}


def _check_dtype(dtype: Any) -> Any:
    names = {name: getattr(torch, name) for name in DTYPES}
    if dtype is None:
        return "auto"
    if dtype in names.values():
        return dtype
    if isinstance(dtype, str) and dtype in names:
        return names[dtype]
    raise ParameterError(f"dtype={dtype!r} is not one of {', '.join(DTYPES)}, nor None.")


def _check_device(device: Any) -> Any:
    if device is None or device == "auto":
        return device
    try:
        return {"": torch.empty(0, device=device).device}
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ParameterError(
            f"device={device!r} cannot be used here ({reason}). This machine has {', '.join(_devices())}; leave the "
            "device out for the CPU."
        ) from error


def _devices() -> list[str]:
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]
