from .candidates import Candidate as Candidate
from .evidence import Evidence as Evidence
