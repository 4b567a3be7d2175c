"""Samplers of `gibbs` with the fields of their values as arguments: data, prior and options."""

from __future__ import annotations

import numpy as np
from support.by_name import named_values
from support.by_name import sampler_by_name as flat

from gibbs.models import exact_probit, hyper, multilatent, multinomial_probit, pairwise, sampling, softmax, threshold

check = flat(multilatent.check)
sample_exact, exact_evidence = flat(exact_probit.sample_exact), flat(exact_probit.log_evidence)
sample_hyper, make_model = flat(hyper.sample), flat(hyper.make_model, n_warmup=0)
sample_probit, sample_threshold = flat(multinomial_probit.sample), flat(threshold.sample)
sample_softmax, sample_logit = flat(softmax.sample), flat(sampling.sample)
sample_pairwise, prepare_pairwise = (flat(each, prior_model="fitc") for each in (pairwise.sample, pairwise.prepare))


def sample_full(X, y_sign, *prior, **options):
    """Chains of the binary logit likelihood, labels -1 and +1, of the full GP."""
    return _logit(sampling.sample, X, y_sign, None, prior, options)


def sample_fitc(X, y_sign, Z, *prior, **options):
    """The same of FITC."""
    return _logit(sampling.sample, X, y_sign, Z, prior, options)


def full_covariance(X, *prior, **options):
    """K_XX of the full GP."""
    return _logit(sampling.full_covariance, X, np.ones(len(X)), None, prior, options)


def fitc_white(X, Z, *prior, **options):
    """White rows of FITC."""
    return _logit(sampling.fitc_white, X, np.ones(len(X)), Z, prior, options)


def _logit(function, X, y_sign, Z, prior, options):
    names = ("variance", "lengthscales", "noise", "jitter", "X_test")
    values = {"X": X, "Z": Z, "prior_model": "full" if Z is None else "fitc"}
    values |= {"y": (np.asarray(y_sign) > 0).astype(int)} | named_values(function.__name__, names, prior, options)
    return flat(function)(**values)
