"""The report of a tuned steering: the page and the last screen, from the record that ``repsurgery tune`` writes."""
