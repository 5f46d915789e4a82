"""Steering vectors of other programs: control vectors in GGUF, and safetensors files with a vector per layer."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from repsurgery.affine import Translation
from repsurgery.arrays import Vector
from repsurgery.errors import DataError, FileFormatError, MissingExtraError, ParameterError, ShapeError
from repsurgery.origin import Origin
from repsurgery.steering.function import EVERYBODY, SteeringFunction

__all__ = ["GGUF", "REPENG", "SAFETENSORS", "STEERING_VECTORS", "ForeignVectors", "VectorImporter"]

_LAYER = re.compile(r"(?:(?:direction|layers?|layer_activations|decoder_block)[._])?(\d+)")
"""Names of tensors that name a layer: ``direction.12``, ``layers.12``, ``layer_12`` and ``12``, for example."""
_SITE = re.compile(r"final|layers\.\d+\.(?:attn|mlp)")
_LAYER_TYPES = {"decoder_block": "", "self_attn": ".attn", "mlp": ".mlp"}
"""Where steering-vectors adds a vector, as the end of the name of the site."""
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


@dataclass(frozen=True, slots=True)
class ForeignVectors:
    """The vectors (d,) in a file by site, where None is a site that the file does not name; and its model type."""

    by_site: Mapping[str | None, Vector]
    model_type: str | None = None


@dataclass(frozen=True, slots=True)
class VectorImporter:
    """Reads a file of vectors, of which one becomes a shift h ↦ h + v at its site.

    Attributes
    ----------
    name : str
    reader : function
        Returns the vectors in a file.

    Guarantees
    ----------
    A vector that `lm.to_gguf` wrote is read as the shift that it was, in float32
    (test_an_exported_control_vector_is_imported_as_it_was).
    No pickle is read (test_a_pickle_is_refused_with_what_to_do).
    """

    name: str
    reader: Callable[[Path], ForeignVectors]

    def read(self, path: Path, site: str | None = None) -> tuple[SteeringFunction, Origin]:
        """Return the shift by the vector at ``site``, or by the only one in the file."""
        file = Path(path)
        vectors = self._vectors(file).by_site
        named = [place for place in vectors if place is not None]
        key = site if named else None
        if not named and site is None:
            raise ParameterError(f"site is missing: {file} does not say where its vector belongs. Name the site.")
        if site is None and len(named) == 1:
            key = named[0]
        elif site is None:
            raise ParameterError(f"site is missing: {file} holds vectors for {', '.join(named)}. Choose one of them.")
        if key not in vectors:
            raise ParameterError(f"site is {site!r}; {file} holds vectors for {', '.join(named)}. Choose one of them.")
        return SteeringFunction({EVERYBODY: Translation(vectors[key])}), Origin(site=key or site)

    def model_type(self, path: Path) -> str | None:
        """Return the model type that the file names, or None."""
        return self._vectors(Path(path)).model_type

    def _vectors(self, file: Path) -> ForeignVectors:
        if not file.is_file():
            raise FileFormatError(f"{file} is not a file. Give the name of a file with vectors.")
        with file.open("rb") as stream:
            head = stream.read(4)
        if head.startswith((b"\x80", b"PK\x03\x04")):  # a pickle, and the archive in which torch.save puts one
            raise FileFormatError(
                f"{file} is a pickle, which can run any code when it is read, so it is not read. Where you trust it, "
                "load it with the program that wrote it, and write the vectors as safetensors: "
                'safetensors.torch.save_file({f"layers.{n}": v for n, v in vector.layer_activations.items()}, '
                '"vectors.safetensors").'
            )
        return self.reader(file)


def _read_gguf(file: Path, *, first: int) -> ForeignVectors:
    """Return the control vectors in a GGUF file, in which layers count from ``first``."""
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError(
            f"Importing GGUF needs the gguf package ({error}): pip install 'repsurgery[export]'"
        ) from error
    try:
        reader = gguf.GGUFReader(file)
        fields = {name: _text(field) for name, field in reader.fields.items()}
        tensors = [(t.name, t.tensor_type.name, np.array(t.data)) for t in reader.tensors]
    except Exception as error:  # the parser is given bytes of unknown origin
        reason = " ".join(str(error).split())[:100]
        raise FileFormatError(f"{file} is truncated or is not a GGUF file ({reason}). Export it again.") from error
    if fields.get("general.architecture") != "controlvector":
        raise FileFormatError(
            f"{file} is a GGUF file of the architecture {fields.get('general.architecture')!r}, not a control vector. "
            "Give the file of the vector, not of the model."
        )
    found: dict[str | None, Vector] = {}
    for name, kind, data in tensors:
        match = re.fullmatch(r"direction\.(\d+)", name)
        if match is None or int(match[1]) < first:
            zero = "; layer 0 exists only in files of repeng, which --from repeng reads" if match else ""
            raise FileFormatError(
                f"{file} holds the tensor {name!r:.60}; a control vector has tensors direction.{first}, "
                f"direction.{first + 1} and so on{zero}."
            )
        if kind not in _DTYPES:
            raise FileFormatError(f"{file} holds {name} in the format {kind}. Export it in float32.")
        found[f"layers.{int(match[1])}"] = _vector(file, name, data)
    return ForeignVectors(_some(file, found), fields.get("controlvector.model_hint"))


def _text(field: Any) -> str | None:
    return str(bytes(field.parts[-1]), "utf-8", "replace") if field.types and field.types[0].name == "STRING" else None


def _read_safetensors(file: Path) -> ForeignVectors:
    try:
        with safe_open(file, framework="numpy") as opened:
            metadata = opened.metadata() or {}
        tensors = {name: _array(entry) for name, entry in deserialize(file.read_bytes())}  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, KeyError) as error:
        raise FileFormatError(f"{file} is truncated or is not a safetensors file ({error}). Write it again.") from error
    if "repsurgery" in metadata:
        raise FileFormatError(f"{file} was written by repsurgery and needs no import. Use it as it is.")
    layer_type = metadata.get("layer_type", "decoder_block")
    if layer_type not in _LAYER_TYPES:
        raise FileFormatError(
            f"{file} holds vectors for the layer type {layer_type!r:.60}; only {', '.join(_LAYER_TYPES)} are known. "
            "Write each vector without this note into a file of its own, and name its site."
        )
    if len(tensors) == 1 and not _site(next(iter(tensors)), layer_type):
        ((name, data),) = tensors.items()
        return ForeignVectors({None: _vector(file, name, data)})
    unknown = [name for name in sorted(tensors) if not _site(name, layer_type)]
    if unknown:
        raise FileFormatError(
            f"{file} holds the tensors {', '.join(unknown[:3])!r:.100}, which name no layer. Name each vector by its "
            "layer, such as layers.12, or write one vector per file and name its site."
        )
    found = {_site(name, layer_type): _vector(file, name, data) for name, data in tensors.items()}
    if len(found) < len(tensors):
        raise FileFormatError(f"{file} holds several vectors for one layer. Keep one of them.")
    return ForeignVectors(_some(file, found), metadata.get("model_type"))


def _site(name: str, layer_type: str) -> str | None:
    match = _LAYER.fullmatch(name)
    if match is None:
        return name if _SITE.fullmatch(name) else None
    return f"layers.{int(match[1])}{_LAYER_TYPES[layer_type]}"


def _array(entry: Mapping[str, Any]) -> Any:
    data, dtype, shape = entry["data"], entry["dtype"], entry["shape"]
    if dtype == "BF16":  # the upper half of a float32
        halves = np.frombuffer(data, dtype="<u2").astype("<u4") << 16
        return halves.view("<f4").reshape(shape)
    if dtype not in _DTYPES:
        raise ValueError(f"a tensor has the number format {dtype}")
    return np.frombuffer(data, dtype=np.dtype(_DTYPES[dtype]).newbyteorder("<")).reshape(shape)


def _vector(file: Path, name: str, data: Any) -> Vector:
    """Return a tensor as a vector (d,): in (1, d) and (1, 1, d) the rows are one."""
    if data.ndim == 0 or data.size == 0 or data.size != data.shape[-1]:
        raise ShapeError(
            f"{file} holds {name} of shape {data.shape}; a vector has the shape (d,). Write one per layer."
        )
    vector: Vector = data.reshape(-1).astype(np.float64)
    if not np.isfinite(vector).all():
        raise DataError(f"{file} holds NaN or infinity in {name}. Compute the vector again.")
    return vector


def _some(file: Path, found: Mapping[str | None, Vector]) -> Mapping[str | None, Vector]:
    if not found:
        raise FileFormatError(f"{file} holds no vectors. Export it again.")
    return dict(
        sorted(found.items(), key=lambda one: [int(n) for n in re.findall(r"\d+", one[0] or "")] or [sys.maxsize])
    )


def _by_content(file: Path) -> ForeignVectors:
    """Return the vectors in what repeng writes: GGUF, or safetensors, as users store its directions."""
    with file.open("rb") as stream:
        return _read_gguf(file, first=0) if stream.read(4) == b"GGUF" else _read_safetensors(file)


REPENG = VectorImporter("repeng", _by_content)
STEERING_VECTORS = VectorImporter("steering-vectors", _read_safetensors)
GGUF = VectorImporter("gguf", lambda file: _read_gguf(file, first=1))
SAFETENSORS = VectorImporter("safetensors", _read_safetensors)
