"""Generate continuations, steered or not, with noise that is keyed by prompt and sample."""
