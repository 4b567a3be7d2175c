"""The commands of `triad`."""
