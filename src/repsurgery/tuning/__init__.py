"""The search for a steering that has an effect at a stated price, and the judge that measures the effect."""
