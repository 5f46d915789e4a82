"""Pictures that objects draw of themselves by ``plot()``; matplotlib is imported when one is drawn."""
