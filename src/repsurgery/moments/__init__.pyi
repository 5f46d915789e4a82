from .by_class import ClassMoments as ClassMoments
from .cross import CrossMoments as CrossMoments
from .ledger import Ledger as Ledger
from .ledger import Part as Part
from .moments import Moments as Moments
from .sketch import Sketch as Sketch
