"""Batches: from texts to padded tokens, and to passes of a model that fit into memory."""
