from .algebra import compose as compose
from .algebra import interpolate as interpolate
from .base import AffineMap as AffineMap
from .maps import Dense as Dense
from .maps import Diagonal as Diagonal
from .maps import Identity as Identity
from .maps import LowRank as LowRank
from .maps import Translation as Translation
