"""Experiments of villacampa2020: section 5 and appendices B to D."""
