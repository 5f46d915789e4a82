"""Every error and warning of this package, each with its usual remedy."""

__all__ = [
    "BatchHalvedWarning",
    "CacheWarning",
    "CertificateError",
    "ConceptWarning",
    "ConstantFeatureWarning",
    "DamagedFileError",
    "DataError",
    "DuplicateWarning",
    "EngineError",
    "EngineWarning",
    "ExtrapolationWarning",
    "FileFormatError",
    "FoldError",
    "GainWarning",
    "HeldOutWarning",
    "HubError",
    "IdentityWarning",
    "InfeasibleWarning",
    "LabelError",
    "LabelWarning",
    "LedgerError",
    "MissingExtraError",
    "ModelError",
    "NonFiniteError",
    "NonFiniteWarning",
    "NotConvergedWarning",
    "NotNumericError",
    "OptionsError",
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
    "SketchError",
    "SteeringError",
    "SteeringWarning",
    "SurgeryError",
    "SurgeryWarning",
    "TableWarning",
    "TextError",
]


class SurgeryError(ValueError):
    """Base class of every error of this package; catch it to catch them all."""


class DataError(SurgeryError):
    """The numbers cannot be used: NaN, infinity or overflow. Drop, repair or rescale them."""


class DamagedFileError(DataError):
    """A data file is truncated or not of its stated kind. Write it again; finished work on other files is kept."""


class NotNumericError(DataError, TypeError):
    """Real numbers are needed, not text, objects, sparse or complex arrays. Convert them to a dense float array."""


class ShapeError(SurgeryError):
    """An array has the wrong shape. Extract it at the site that was used for fitting, or fit again."""


class LabelError(SurgeryError):
    """Concept labels are missing, unknown, continuous or of one class only. Correct the labels."""


class SeveralMapsError(SurgeryError, AttributeError):
    """``map_`` was read from an estimator with one map per class. Choose one from ``maps_``."""


class ParameterError(SurgeryError):
    """A parameter has a value that is not allowed; the message lists the allowed values."""


class OptionsError(ParameterError):
    """Options exclude or need each other. Leave out, or add, those that the message names."""


class OutputError(ParameterError):
    """The output cannot be written, or would overwrite an input. Name another file or folder."""


class RowsNeededError(SurgeryError):
    """A gate or shrinkage needs rows, but got moments. Call ``fit(X, z)`` or choose one that works with moments."""


class SingularCovarianceError(SurgeryError):
    """A covariance that must be inverted is singular. Add rows or choose a shrinkage."""


class SingularMapError(SurgeryError):
    """The map has no inverse. Interpolate to a strength below 1 first."""


class CertificateError(SurgeryError):
    """The bytes, a cast or the data contradict the claims of a certificate. Fit again on data you trust."""


class SketchError(DataError):
    """Moments are not what the sketch beside them counted. Count the rows again, or load an undamaged file."""


class LedgerError(DataError):
    """A part of the data was counted twice, left out or changed. Count each part once and add the results again."""


class FileFormatError(SurgeryError):
    """A file is truncated, altered, of another kind or of a newer version. Write it again."""


class RecordError(SurgeryError):
    """The record of a run is missing, altered or of another layout. Run the study again."""


class SiteError(SurgeryError):
    """The model has no such site, or its architecture is unknown. The message lists the sites of the model."""


class PassError(ParameterError):
    """The padding or positions of a forward pass cannot be determined. The message names a way that works."""


class SteeringError(SurgeryError):
    """A steering block steered nothing, or lost its hooks: its results are those of the unsteered model."""


class FoldError(SurgeryError):
    """The weights cannot hold the map at this site. Fold at a site that the message names, or steer with hooks."""


class TextError(SurgeryError):
    """A text is empty, too long for the context, or of another type. Drop it, cut it or set ``max_length``."""


class NonFiniteError(SurgeryError):
    """A steered state or a map overflowed its number format. Lower the strength, rescale, or fit with more rows."""


class MissingExtraError(SurgeryError, ImportError):
    """An optional dependency is not installed. The message names the extra to install."""


class ModelError(SurgeryError):
    """A model cannot be found, read or trusted. Pass a folder, a reachable hub id or an embedded name."""


class HubError(SurgeryError):
    """The hub cannot be reached, has no such repository, or refuses access. Check name, network and token."""


class ShardError(SurgeryError):
    """Some shards could not be read; the message names them. Repair them and run again: the others are kept."""


class EngineError(SurgeryError):
    """The cluster cannot be reached, or its workers die repeatedly. Check the address, or the workers' memory."""


class SurgeryWarning(UserWarning):
    """Base class of every warning of this package."""


class ConceptWarning(SurgeryWarning):
    """Metadata routing is on and no ``concept`` was passed, so ``y`` was used instead. Pass ``concept=``."""


class ConstantFeatureWarning(SurgeryWarning):
    """Classes differ in features that vary less than their number format can hold. Rescale or leave them out."""


class InfeasibleWarning(SurgeryWarning):
    """No affine map reaches the target covariance; the closest one is used and its residual is reported."""


class HeldOutWarning(SurgeryWarning):
    """On rows left out of the fit, the gap is wider than without steering. Add rows, or choose a shrinkage."""


class GainWarning(SurgeryWarning):
    """The map stretches some direction more than a hundredfold. Add rows or choose a shrinkage."""


class SteeringWarning(SurgeryWarning):
    """A steering block ended in an error before anything was steered."""


class ExtrapolationWarning(SurgeryWarning):
    """A strength outside [0, 1] leaves the geodesic between source and target."""


class BatchHalvedWarning(SurgeryWarning):
    """A batch did not fit into memory and was halved. Set a smaller ``batch_size`` to avoid the failed attempt."""


class CacheWarning(SurgeryWarning):
    """A cached file no longer matches its digest and is built again from its source."""


class IdentityWarning(SurgeryWarning):
    """Data without a stable identity, such as a stream without a key, is not cached. Give it a key, or save it."""


class DuplicateWarning(SurgeryWarning):
    """The same data was named twice, or two shards hold the same rows. Check which data is counted."""


class LabelWarning(SurgeryWarning):
    """A label that a sentence uses as a word does not describe texts. Rename it, as in toxic or rude."""


class NonFiniteWarning(SurgeryWarning):
    """Rows with NaN or infinity were left out, as requested; the message says how many and where."""


class EngineWarning(SurgeryWarning):
    """The cluster is reachable but has no free workers; the work starts when there are some. Start workers."""


class TableWarning(SurgeryWarning):
    """A table was read in an encoding or with separators that it does not state, or labels became equal; check it."""


class PluginWarning(SurgeryWarning):
    """A plugin that cannot be imported, or registers a name that is taken. Repair, rename or uninstall it."""


class OriginWarning(SurgeryWarning):
    """A steering is used with another model or site than it was fitted for. Use those, or fit again."""


class NotConvergedWarning(SurgeryWarning):
    """An iteration stopped before it converged. Raise ``max_iter``, lower ``C`` or loosen ``tol``."""
