"""Choose a steering for a concept at a stated price: search, confirmation, and a lock that reproduces the result."""
