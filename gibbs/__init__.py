"""Ground truth: exact draws and chains, each with log Z and its error."""
