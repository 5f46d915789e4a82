"""A user's script: it runs on a core installation, and a strict type checker accepts it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_type

import numpy as np

import repsurgery as rs

rng = np.random.default_rng(0)
X, z = rng.normal(size=(200, 4)), np.repeat(["rude", "courteous"], 100)
X[:100] += 1
mimic = rs.MiMiC(source="rude", target="courteous").fit(X, z)
certificate = assert_type(mimic.certificate_, rs.Certificate)
assert certificate.mean_gap < 1e-9 and certificate.covariance_gap < 1e-9
with TemporaryDirectory() as folder:
    rs.save(mimic, Path(folder) / "kinder.safetensors")
    rs.load(Path(folder) / "kinder.safetensors").verify(X, z)
# an ignored error that is none would be reported: the types are seen, not taken for Any
wrong: int = certificate.mean_gap  # type: ignore[assignment]
try:
    import repsurgery.lm
except rs.errors.MissingExtraError as error:
    assert "pip install 'repsurgery[lm]'" in str(error)
