"""The papers in NumPy, literally: one equation, one function, one address."""
