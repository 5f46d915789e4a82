"""Rivals of steering. Each module here registers one `TextGenerator`, as `generators.GENERATORS` describes."""
