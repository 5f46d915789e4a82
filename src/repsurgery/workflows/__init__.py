"""The functions behind the commands: fit a steering, compare continuations, fold, and open steering files."""
