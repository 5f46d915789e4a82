"""The training of the scorer `scorers.MiniLMScorer`, on rows that the study neither fits on nor evaluates."""
