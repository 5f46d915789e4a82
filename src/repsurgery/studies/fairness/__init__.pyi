from .encoders import ENCODERS as ENCODERS
from .own_data import FOLLOWING as FOLLOWING
from .run import run_study as run_study
from .spec import PRESETS as PRESETS
from .spec import StudySpec as StudySpec
from .spec import load_spec as load_spec
from .spec import make_spec as make_spec
from .spec import spec_toml as spec_toml
