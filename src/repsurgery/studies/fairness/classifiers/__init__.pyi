from .concept import concept_classifier as concept_classifier
from .logistic import SoftmaxRegression as SoftmaxRegression
from .released import released_logistic_regression as released_logistic_regression
