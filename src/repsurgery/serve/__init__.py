"""Serve a model over HTTP; each request chooses its steering."""
