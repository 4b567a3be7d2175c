"""Nested expectation propagation for the multinomial probit (Riihimäki, Jylänki and Vehtari, 2013), and its rivals."""
