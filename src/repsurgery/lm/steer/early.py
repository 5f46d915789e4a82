"""`check_places`: whether a model has these sites, and steerings fit there, before its weights are read."""

import os
from collections.abc import Iterable
from typing import Any

from repsurgery.errors import SurgeryError
from repsurgery.lm.load.models import empty_model, read_config
from repsurgery.lm.steer.steer import site_of_width

__all__ = ["check_places"]


def check_places(name: str | os.PathLike[str], places: Iterable[tuple[str, int | None]]) -> None:
    """Raise now what reading or steering at these places would raise once the model ``name`` is loaded.

    Parameters
    ----------
    name : str or path
        As in `load`; only the configuration is read.
    places : iterable of (site, features)
        Sites, and the features of the map that acts there; None where a map has yet to be fitted.

    Raises
    ------
    SiteError, ShapeError, ModelError
        There is no such site, it has another width, or there is no such model.

    Guarantees
    ----------
    No weight is read (test_site_and_width_are_told_before_weights_are_read).
    """
    config, _ = read_config(name)
    try:
        model: Any = empty_model(config)
    except SurgeryError:
        raise
    except (RuntimeError, NotImplementedError, TypeError, ValueError, ImportError):
        return  # some architectures are only built with numbers; what is wrong is then told after loading
    for site, features in places:
        site_of_width(model, site, features)
