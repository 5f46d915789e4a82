"""Hypothesis runs every property on the same examples each time, without a clock.

With ``REPSURGERY_EXAMPLES=5000`` it draws so many new examples of each, and ``--hypothesis-seed`` names the draw.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repsurgery",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
examples = os.environ.get("REPSURGERY_EXAMPLES")
if examples:
    settings.register_profile("long", settings.get_profile("repsurgery"), max_examples=int(examples), derandomize=False)
settings.load_profile("long" if examples else "repsurgery")
