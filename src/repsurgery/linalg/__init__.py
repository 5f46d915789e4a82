"""Pure functions of matrices: no classes with state, no data sets."""
