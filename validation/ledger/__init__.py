"""The ledger: every equation of the five papers, the functions that realise it, the tests that could refute it."""
