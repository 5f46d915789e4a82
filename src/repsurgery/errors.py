"""Every error and warning this package raises, each with what usually mends it."""

__all__ = [
    "BatchHalvedWarning",
    "CacheWarning",
    "CertificateError",
    "ConceptWarning",
    "DamagedFileError",
    "DataError",
    "DuplicateWarning",
    "EngineError",
    "EngineWarning",
    "ExtrapolationWarning",
    "FileFormatError",
    "FoldError",
    "GainWarning",
    "IdentityWarning",
    "InfeasibleWarning",
    "LabelError",
    "MissingExtraError",
    "ModelError",
    "NonFiniteError",
    "NonFiniteWarning",
    "NotConvergedWarning",
    "NotNumericError",
    "OriginWarning",
    "OutputError",
    "ParameterError",
    "PassError",
    "PluginWarning",
    "RecordError",
    "RowsNeededError",
    "SeveralMapsError",
    "ShapeError",
    "ShardError",
    "SingularCovarianceError",
    "SingularMapError",
    "SiteError",
    "SteeringError",
    "SteeringWarning",
    "SurgeryError",
    "SurgeryWarning",
    "TextError",
]


class SurgeryError(ValueError):
    """Base of every error of this package; catch it to catch them all."""


class DataError(SurgeryError):
    """Numbers that cannot be used: NaN, infinity, overflow. Drop, repair or rescale them."""


class DamagedFileError(DataError):
    """A file of data that is truncated or not of its kind. Write it again; work on the others is kept."""


class NotNumericError(DataError, TypeError):
    """Text, objects, sparse or complex arrays where real numbers are needed. Convert to a dense float array."""


class ShapeError(SurgeryError):
    """Arrays of the wrong size. Extract them at the site used for fitting, or fit again."""


class LabelError(SurgeryError):
    """Concept labels that are missing, unknown, continuous or of one class only. Correct the labels."""


class SeveralMapsError(SurgeryError, AttributeError):
    """``map_`` was asked of an estimator with one map per class. Choose one from ``maps_``."""


class ParameterError(SurgeryError):
    """A parameter outside its allowed values. The message lists them."""


class OutputError(ParameterError):
    """A place that cannot be written to, or an input that would be overwritten. Name another file or folder."""


class RowsNeededError(SurgeryError):
    """A gate or shrinkage that needs rows met moments. Call ``fit(X, z)`` or choose one that reads moments."""


class SingularCovarianceError(SurgeryError):
    """A covariance that must be inverted is singular. Add rows or choose a shrinkage."""


class SingularMapError(SurgeryError):
    """A map without an inverse was to be inverted. Interpolate to a strength below 1 first."""


class CertificateError(SurgeryError):
    """Bytes, a cast or data no longer support what a certificate claims. Fit again on data you trust."""


class FileFormatError(SurgeryError):
    """A file that is truncated, altered, of another kind or of a newer version. Write it again."""


class RecordError(SurgeryError):
    """A record of a run that is missing, altered or of another layout. Run the study again."""


class SiteError(SurgeryError):
    """A place the model does not have, or whose architecture is unknown. The message lists what was found."""


class PassError(ParameterError):
    """A forward pass whose padding or positions cannot be known. The message names a way that can."""


class SteeringError(SurgeryError):
    """A steering block that steered nothing, or lost its hooks. Results computed in it are those of the bare model."""


class FoldError(SurgeryError):
    """A map that the weights cannot hold at this site. Fold at a site the message names, or steer with hooks."""


class TextError(SurgeryError):
    """A text that is empty, too long for the context, or of another type. Drop it, cut it or set ``max_length``."""


class NonFiniteError(SurgeryError):
    """A steered state or a map left its number range. Lower the strength, rescale, or fit with more rows."""


class MissingExtraError(SurgeryError, ImportError):
    """An optional dependency is absent. The message names the extra to install."""


class ModelError(SurgeryError):
    """A model that cannot be found, read or trusted. Pass a folder, a reachable hub id or an embedded name."""


class ShardError(SurgeryError):
    """Some shards could not be counted; the message names them. Repair them and run again: the others are kept."""


class EngineError(SurgeryError):
    """A cluster that cannot be reached, or workers that die again and again. Check the address, or their memory."""


class SurgeryWarning(UserWarning):
    """Base of every warning of this package."""


class ConceptWarning(SurgeryWarning):
    """Metadata routing is on and no ``concept`` was passed, so ``y`` was taken for it. Pass ``concept=``."""


class InfeasibleWarning(SurgeryWarning):
    """No affine map reaches the target covariance; the closest one was taken and its residual reported."""


class GainWarning(SurgeryWarning):
    """The map stretches some direction more than a hundredfold. Add rows or choose a shrinkage."""


class SteeringWarning(SurgeryWarning):
    """A steering block that ended in an error had steered nothing before it."""


class ExtrapolationWarning(SurgeryWarning):
    """A strength outside [0, 1] leaves the geodesic between source and target."""


class BatchHalvedWarning(SurgeryWarning):
    """A batch did not fit into memory and was halved; a smaller ``batch_size`` avoids the lost attempt."""


class CacheWarning(SurgeryWarning):
    """A cached file no longer matches its digest; it is built again from its source."""


class IdentityWarning(SurgeryWarning):
    """Work on what has no stable identity, such as a stream without a key, is not kept. Give it a key, or save it."""


class DuplicateWarning(SurgeryWarning):
    """Data that was named twice, or two shards that hold the same rows. Check what is counted."""


class NonFiniteWarning(SurgeryWarning):
    """Rows with NaN or infinity were left out, as was asked for; the message says how many and where."""


class EngineWarning(SurgeryWarning):
    """A cluster that answers and has no room for the work yet; it begins when there is. Start workers."""


class PluginWarning(SurgeryWarning):
    """A plugin that cannot be imported, or registers a name that is taken. Repair, rename or uninstall it."""


class OriginWarning(SurgeryWarning):
    """A steering meets another model or site than it was fitted for. Use those, or fit again for these."""


class NotConvergedWarning(SurgeryWarning):
    """An iteration stopped before its criterion was met. Raise ``max_iter``, lower ``C`` or loosen ``tol``."""
