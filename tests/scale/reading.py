"""Texts to read: 38 in ten batches of four, one class that fills d, one that does not, one of a single text."""

from tests.lm.tiny_models import texts

TEXTS = texts(38, seed=5)
LABELS = ["alone" if i == 7 else "few" if i % 5 == 0 else "many" for i in range(38)]
