"""Tables, figures and verdicts of a toxicity study."""
