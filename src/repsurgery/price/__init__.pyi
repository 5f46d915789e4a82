from .fisher import Fisher as Fisher
from .price import Price as Price
