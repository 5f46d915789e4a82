"""The published tests of two peers against this library; run ``python -m benchmarks.published_tests``."""
