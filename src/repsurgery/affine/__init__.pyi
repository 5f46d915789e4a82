from .algebra import compose as compose
from .algebra import interpolate as interpolate
from .base import AffineMap as AffineMap
from .coordinate_maps import Diagonal as Diagonal
from .coordinate_maps import Identity as Identity
from .coordinate_maps import Translation as Translation
from .matrix_maps import Dense as Dense
from .matrix_maps import LowRank as LowRank
