"""Code that all studies share: options, resumable stages, estimates and the record of the environment."""
