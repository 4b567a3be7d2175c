"""The same methods, optimised: vectorised over data and classes, blocked, log domain."""
