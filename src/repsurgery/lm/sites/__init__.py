"""Sites: the places in a model where vectors are read and steered."""
