"""Tables, figures and verdicts of a fairness study."""
