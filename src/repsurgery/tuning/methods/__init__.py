"""The methods that `tune` races: each file registers some of them in `CANDIDATES`."""
