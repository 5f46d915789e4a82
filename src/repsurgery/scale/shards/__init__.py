"""Shards: labelled vectors on disk and in streams."""
