"""The few hot loops. Everything else in the package is plain array code."""
