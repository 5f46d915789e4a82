"""Steering files for the embedded model, ready to use: ``rs.load("courteous")``; `names` lists them.

`repsurgery tune` made each of them, and wrote its lock, which makes the file again bit for bit. The files hold the
measured effect, its price and the certificate; what they were fitted on lies beside them or is embedded.
"""

from pathlib import Path

from repsurgery.errors import ParameterError

__all__ = ["lock", "names", "path"]

_FOLDER = Path(__file__).parent
_SUFFIX = ".safetensors"


def names() -> tuple[str, ...]:
    """Return the names of all entries, sorted.

    Examples
    --------
    >>> import repsurgery as rs
    >>> rs.zoo.names()
    ('courteous', 'non-toxic', 'positive')
    """
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in _FOLDER.glob(f"*{_SUFFIX}")))


def path(name: str) -> Path:
    """Return the steering file of an entry.

    Guarantees
    ----------
    Each holds a measured effect whose interval excludes zero (test_every_entry_has_an_effect_at_its_price).
    """
    if name not in names():
        raise ParameterError(f"The zoo has no entry {name!r}; it has {', '.join(names())}.")
    return _FOLDER / f"{name}{_SUFFIX}"


def lock(name: str) -> Path:
    """Return the lock of an entry: ``repsurgery tune --lock`` makes the same file from it.

    Guarantees
    ----------
    It states the digest and the effect that the file holds (test_every_lock_states_what_its_file_holds).
    """
    return path(name).with_name(f"{name}.lock.json")
