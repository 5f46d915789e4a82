"""Rival methods, written from their papers, to be measured beside ours."""

__all__: list[str] = []
