from .certificate import Certificate as Certificate
from .certificate import HeldOut as HeldOut
from .certificate import PairRecord as PairRecord
from .continuous import ContinuousCertificate as ContinuousCertificate
from .continuous import HeldOutColumns as HeldOutColumns
from .effect import EffectCertificate as EffectCertificate
from .findings import Verification as Verification
from .outcome import Outcome as Outcome
