from .certificate import Certificate as Certificate
from .certificate import PairRecord as PairRecord
from .verify import Verification as Verification
