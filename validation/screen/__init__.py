"""What a terminal, a figure or a file shows of results, and how far a run is."""
