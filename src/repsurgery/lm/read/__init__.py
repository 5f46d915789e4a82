"""Read hidden states: vectors per text, moments per class, states along a generation."""
