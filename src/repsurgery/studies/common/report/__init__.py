"""Tables, numbers, figures and templates that the reports of all studies share."""
