"""Steerings in the hub's layout: a folder or repository of a steering file, its configuration and its card."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsurgery.checkpoint import atomic_file, file_digest
from repsurgery.errors import FileFormatError, HubError, ParameterError
from repsurgery.files import FORMAT_VERSION, read_file, to_bytes
from repsurgery.outputs import check_output_folder
from repsurgery.steering.hub import check_repository, download, upload
from repsurgery.steering.model_card import Facts, card_of

if TYPE_CHECKING:
    from repsurgery.steering.function import SteeringFunction

__all__ = ["CARD", "CONFIG", "STEERING", "Shareable", "file_in_folder", "file_on_hub", "steering_at"]

STEERING = "steering.safetensors"
CONFIG = "config.json"
"""The hub counts downloads by this file."""
CARD = "README.md"


class Shareable:
    """What a steering function and a fitted estimator have in common: they can be shared.

    Guarantees
    ----------
    What is shared loads as it was, bit for bit (test_what_is_pushed_loads_as_it_was).
    Of an estimator, the moments are not shared (test_an_estimator_shares_its_steering_and_not_its_moments).
    """

    __slots__ = ()

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        repository: str | None = None,
        licence: str | None = None,
        fitted_on: str | None = None,
        datasets: Sequence[str] = (),
        base_model: str | None = None,
    ) -> Path:
        """Write the steering to ``folder`` in the hub's layout, with a generated card, and return the folder.

        Of an estimator, the steering function is written. Its moments, which describe the data, are not.

        Parameters
        ----------
        folder : path
            Its files steering.safetensors, config.json and README.md are replaced; others stay.
        repository : str or None
            Where it will be shared, as OWNER/NAME, so that the card says how to load it.
        licence : str or None
            The hub's name of a licence, such as "apache-2.0", or any words; None is the note in the origin.
        fitted_on : str or None
            A sentence on the data it was fitted on.
        datasets : sequence of str
            The hub's names of that data.
        base_model : str or None
            The hub's name of the model; None follows from the origin.
        """
        path = check_output_folder(folder)
        facts = Facts(repository, licence, fitted_on, tuple(datasets), base_model)
        files = _files(self, facts)
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            with atomic_file(path / name) as stream:
                stream.write(data)
        return path

    def push_to_hub(
        self,
        repository: str,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        private: bool | None = None,
        message: str = "Upload a steering",
        licence: str | None = None,
        fitted_on: str | None = None,
        datasets: Sequence[str] = (),
        base_model: str | None = None,
    ) -> str:
        """Upload what `save_pretrained` writes to a repository on the hub, and return the address of the commit.

        Parameters
        ----------
        repository : str
            OWNER/NAME; it is created where it is missing. An earlier card in it is replaced.
        revision : str or None
            The branch, which is created where it is missing; None is the main one.
        token : str, bool or None
            None is the token in HF_TOKEN or of the login.
        private : bool or None
            Whether a new repository is private; None is the owner's default.
        message : str
            The message of the commit.
        licence, fitted_on, datasets, base_model
            See `save_pretrained`.

        Raises
        ------
        HubError
            The hub cannot be reached, or refuses the upload.
        """
        facts = Facts(check_repository(repository), licence, fitted_on, tuple(datasets), base_model)
        files = _files(self, facts)
        return upload(repository, files, message=message, revision=revision, token=token, private=private)


def file_in_folder(folder: Path) -> Path:
    """Return the steering file of a folder; raise an error if it is missing or its configuration is of another one."""
    file, config = folder / STEERING, folder / CONFIG
    if not file.is_file():
        raise FileFormatError(f"{folder} is a folder without a {STEERING}. Give a steering file, or a shared folder.")
    stated = _stated_digest(config)
    if stated is not None and stated != file_digest(file):
        raise FileFormatError(
            f"{file} is not the file that {CONFIG} beside it describes: one of them was altered or replaced. Download "
            "both again, or save the steering again."
        )
    return file


def file_on_hub(name: str, *, revision: str | None = None, token: str | bool | None = None) -> Path:
    """Return the local copy of the steering file of a repository, OWNER/NAME; it is downloaded once."""
    folder = download(name, (STEERING, CONFIG), revision=revision, token=token)
    if not (folder / STEERING).is_file():
        raise HubError(
            f"{name} holds no steering: it has no file {STEERING}. If it is a model, load it with lm.load; a steering "
            "is shared with push_to_hub."
        )
    return file_in_folder(folder)


def steering_at(place: str | os.PathLike[str], *, revision: str | None, token: str | bool | None) -> "SteeringFunction":
    """Return the steering in a folder of `save_pretrained`, or in a repository on the hub."""
    from repsurgery.steering.function_file import KIND, from_contents

    if Path(place).exists() or isinstance(place, os.PathLike):
        if revision is not None:
            raise ParameterError(f"revision={revision!r} is for repositories on the hub, and {place} is here. Omit it.")
        file = file_in_folder(Path(place))
    else:
        file = file_on_hub(place, revision=revision, token=token)
    return from_contents(read_file(file, kind=KIND))


def _files(value: Any, facts: Facts) -> dict[str, bytes]:
    """Return the files of a repository by name."""
    from repsurgery.steering.function_file import to_contents

    steering = getattr(value, "steering_", value)
    data, origin = to_bytes(to_contents(steering)), steering.origin
    config = {
        **{"library_name": "repsurgery", "format_version": FORMAT_VERSION},
        **{"model": origin.model, "site": origin.site, "file": STEERING, "sha256": hashlib.sha256(data).hexdigest()},
    }
    text = json.dumps(config, indent=2) + "\n"
    return {STEERING: data, CONFIG: text.encode(), CARD: card_of(steering, facts).encode()}


def _stated_digest(config: Path) -> str | None:
    """Return the digest in a configuration that this package wrote; a model's own configuration states none."""
    try:
        stated = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FileFormatError(f"{config} is not JSON ({error}). Save the steering again.") from error
    ours = isinstance(stated, dict) and stated.get("library_name") == "repsurgery"
    return str(stated.get("sha256")) if ours else None
