"""One module per method; each wires mechanisms together."""
