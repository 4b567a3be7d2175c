"""log Z of the binary logit model by routes that share no computation but NumPy's and SciPy's."""
