"""Import paths of studies that users know: `harness` and `toxicity`; see `repsurgery.studies`."""
