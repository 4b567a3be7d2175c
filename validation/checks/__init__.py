"""The checks of the judge: what is compared (identity, exactness, ...), how it is run, and what fails the run."""
