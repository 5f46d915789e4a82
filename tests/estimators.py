"""Every estimator, for tests that all of them must pass."""

import repsurgery as rs

ALL = [
    rs.MeanMatching,
    rs.MiMiC,
    rs.TraceMatching,
    rs.DiagonalTransport,
    rs.MidSteer,
    rs.LEACE,
    rs.BarycenterErasure,
]
