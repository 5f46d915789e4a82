from .by_class import ClassMoments as ClassMoments
from .cross import CrossMoments as CrossMoments
from .moments import Moments as Moments
