"""Files of draws, one for each posterior of the library of truths; `triad.truths.load(NAME).to_arviz()` reads them."""
