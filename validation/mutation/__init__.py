"""The judge's power, measured: random mutants of the witnesses, and the share of them that turns a check red."""
