"""How `solve` speaks to each witness: a `Problem` becomes plain arrays, what comes back becomes a `Solution`."""
