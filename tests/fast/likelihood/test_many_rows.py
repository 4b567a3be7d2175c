"""Rows of one call do not see each other: thousands of rows, more than a table of nodes holds, and a few alone."""

import numpy as np
import pytest

from fast.full_classes.predict import quadrature_probabilities, softmax_probabilities
from fast.likelihood.largest import argmax_moments
from fast.likelihood.logit import expected_log_logit
from fast.likelihood.probit import expected_log_probit
from fast.likelihood.quadrature import log_class_probabilities
from fast.likelihood.region import region_moments

N = 4000
ALONE = [0, 1, 1999, N - 1]


def rows():
    rng = np.random.default_rng(21)
    mean, var = rng.normal(size=(N, 3)), 10.0 ** rng.uniform(-7.0, 1.0, (N, 3))
    cov = np.einsum("ni,nj->nij", mean, mean) + np.eye(3) * var[:, :, None]
    return {"mean": mean, "var": var, "cov": cov, "y": rng.integers(0, 3, N), "sign": rng.choice([-1.0, 1.0], N)}


FUNCTIONS = {
    "the largest of three": lambda r: argmax_moments(r["mean"], r["var"], r["y"]),
    "regions": lambda r: region_moments(r["mean"], np.sqrt(r["var"]), moments=True, curvature=True),
    "log logistic": lambda r: expected_log_logit(r["sign"], 5.0 * r["mean"][:, 0], 10.0 * r["var"][:, 0]),
    "log probit": lambda r: expected_log_probit(r["sign"], 5.0 * r["mean"][:, 0], 10.0 * r["var"][:, 0]),
    "logistic": lambda r: [log_class_probabilities(5.0 * r["mean"][:, 0], 10.0 * r["var"][:, 0])],
    "softmax by points": lambda r: [softmax_probabilities(r["mean"][::40], r["cov"][::40])],
    "orthants by points": lambda r: [quadrature_probabilities(r["mean"][::40], r["cov"][::40])],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_is_the_same_among_thousands_and_alone(name):
    given, function = rows(), FUNCTIONS[name]
    together = [np.asarray(part) for part in function(given) if part is not None]
    step = N // len(together[0])
    for i in [k for k in ALONE if k % step == 0]:
        alone = function({key: value[i : i + 1] for key, value in given.items()})
        for whole, part in zip(together, [p for p in alone if p is not None], strict=True):
            # the same nodes; a table of another shape adds them up in another order
            size = np.abs(part).max()
            np.testing.assert_allclose(whole[i // step], np.asarray(part)[0], rtol=1e-11, atol=1e-12 * size)
