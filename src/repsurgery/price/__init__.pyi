from .fisher import Fisher as Fisher
