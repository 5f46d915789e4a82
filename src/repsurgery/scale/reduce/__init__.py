"""Reduce shards to moments, resumably, and merge the files."""
