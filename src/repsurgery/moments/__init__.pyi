from .by_class import ClassMoments as ClassMoments
from .moments import Moments as Moments
