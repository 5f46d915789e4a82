"""Fold a map into the weights of a model, and export it as LoRA or GGUF."""
