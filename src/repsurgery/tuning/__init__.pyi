from .evidence import Evidence as Evidence
