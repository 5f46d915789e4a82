"""``repsurgery fold``: the older name of ``repsurgery export --to folder``."""

import inspect
from typing import Any

from repsurgery.cli.export import export, write_export

__all__ = ["fold"]


def fold(**options: Any) -> dict[str, Any]:
    """Fold a map into a model's weights and save an ordinary model folder: the older name of export --to folder.

    A steering for some positions only is folded with a warning, where export asks for --every-vector.
    """
    return write_export(to="folder", every_position=True, **options)


_OF_EXPORT = inspect.signature(export)
fold.__signature__ = _OF_EXPORT.replace(  # type: ignore[attr-defined]
    parameters=[one for name, one in _OF_EXPORT.parameters.items() if name not in ("to", "rank", "option")]
)
