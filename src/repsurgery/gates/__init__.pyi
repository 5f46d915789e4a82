from .base import Gate as Gate
from .calibrate import calibrate_gate as calibrate_gate
from .rules import AlwaysGate as AlwaysGate
from .rules import ClassifierGate as ClassifierGate
from .rules import LabelsGate as LabelsGate
from .rules import LinearGate as LinearGate
from .rules import MLPGate as MLPGate
from .rules import QuadraticGate as QuadraticGate
