"""`gibbs` behind the one door: one module per family of models, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

# module -> the methods of its TABLE
ADAPTERS = {
    "exact_probit": ("exact-probit",),
    "logit": ("gibbs-logit", "ensemble-logit"),
    "multilatent": ("gibbs-probit", "gibbs-threshold"),
    "pairwise": ("gibbs-pairwise",),
    "softmax": ("mh-softmax",),
}

answer = dispatcher("gibbs", __name__, ADAPTERS)
