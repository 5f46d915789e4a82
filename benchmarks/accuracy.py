"""float32 rows whose covariances have condition number 1e8: who still reaches the target covariance?"""

import numpy as np

import repsurgery as rs
from benchmarks.data import covariance, transport_error, two_classes
from benchmarks.lines import Line, Settings, at_most, fact
from benchmarks.peers import ce_transport, pot

CONDITION = 1e8


def run(settings: Settings) -> list[Line]:
    """Measure the relative error of W S0 Wᵀ against S1, both in float64 from the same rows."""
    d, n = (32, 500) if settings.quick else (256, 20_000)
    data = two_classes(n, d, condition=CONDITION)
    S0, S1 = covariance(data.source), covariance(data.target)
    ours = rs.MiMiC(source=0, target=1).fit(data.X, data.z)
    lines = [
        fact(f"d={d} condition of S0 as sampled", float(np.linalg.cond(S0))),
        at_most(f"d={d} error of W S0 W' ours", transport_error(ours.map_.weight, S0, S1), 1e-5),
    ]
    for dtype in ("float32", "float64"):
        for reg in (0.0, 1e-8):
            W = pot(data, dtype=dtype, reg=reg)
            lines.append(fact(f"d={d} error of W S0 W' POT {dtype}, reg={reg:g}", transport_error(W, S0, S1)))
        W = ce_transport(data, dtype=dtype)
        lines.append(fact(f"d={d} error of W S0 W' CE ot_map {dtype}", transport_error(W, S0, S1)))
    return lines
