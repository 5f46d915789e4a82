"""The toxicity study: steer a model away from toxic text at every step, and measure what that does."""
