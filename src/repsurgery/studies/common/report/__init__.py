"""Tables, numbers, figures and pages that all reports share."""
