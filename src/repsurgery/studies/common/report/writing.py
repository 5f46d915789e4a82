"""Text files that are written completely or not at all."""

from pathlib import Path

__all__ = ["write_whole"]


def write_whole(text: str, path: Path) -> Path:
    """Write ``text`` to ``path`` completely or not at all, creating its folder, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".part")
    try:
        fresh.write_text(text, encoding="utf-8")
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh.replace(path)
