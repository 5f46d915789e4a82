"""The soft gate of docs/guide/extending.md, as a contributor would copy it into a file of their own."""

import re
from functools import cache
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "guide" / "extending.md"
(GATE,) = re.findall(r"^```python\n([^`]*class NearnessGate.*?)^```", GUIDE.read_text(), re.M | re.S)


@cache
def nearness_of_the_guide():
    """Return the class and the function of the guide that build its soft gate over several classes."""
    # the name under which all code of the documentation is run, because no two classes share one kind
    scope = {"__name__": "__documentation__"}
    exec(GATE, scope)
    return scope["NearnessGate"], scope["nearness"]
