from .configuration import Configuration as Configuration
from .configuration import parse_configuration as parse_configuration
from .own_data import FOLLOWING as FOLLOWING
from .run import run_toxicity as run_toxicity
from .spec import ToxicitySpec as ToxicitySpec
from .spec import load_toxicity_spec as load_toxicity_spec
from .spec import make_toxicity_spec as make_toxicity_spec
from .spec import toxicity_toml as toxicity_toml
