"""What the commands do, as functions: fit, compare, fold, and open steering files."""
