"""Score texts: log-likelihoods, KL divergence, perplexity."""
