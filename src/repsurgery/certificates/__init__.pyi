from .certificate import Certificate as Certificate
from .certificate import PairRecord as PairRecord
from .effect import EffectCertificate as EffectCertificate
from .outcome import Outcome as Outcome
from .verify import Verification as Verification
