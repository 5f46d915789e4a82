from .fair_post_processing import ALPHAS as ALPHAS
from .fair_post_processing import FairPostProcessing as FairPostProcessing
