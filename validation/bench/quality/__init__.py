"""Quality by default: every classifier with untouched settings on real sets, beside the programs that people use."""
