"""The demonstration: a small model steered from rude to courteous."""
