"""File formats of labelled vectors, read in bounded batches."""
