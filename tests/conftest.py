"""Hypothesis runs every property on the same examples each time, without a clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repsurgery",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repsurgery")
