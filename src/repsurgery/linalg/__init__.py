"""Pure functions of matrices, without state and without data sets."""
