"""The links of one latent function: all that methods take from p(y | f) of two classes, one row a link.

A method asks `link_of` and calls what it needs. No function of a link is chosen anywhere else, so a new link is a row
here; its integrals and derivatives stand in `fast.likelihood`, its prediction in `fast.one_latent.predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fast.core.inputs import one_of
from fast.core.types import FloatArray
from fast.likelihood.logit import expected_log_logit
from fast.likelihood.probit import expected_log_probit
from fast.likelihood.quadratic_bounds import LogLikelihood, logistic, probit
from fast.likelihood.third_derivatives import logit_third, probit_third
from fast.one_latent.explicit_q import Expected
from fast.one_latent.predict import Prediction, ProbitPrediction, logit_prediction, probit_prediction


@dataclass(frozen=True, kw_only=True)
class BinaryLink:
    """What p(y | f) gives the methods that let their user choose a link; labels are -1, +1, log p concave in f."""

    log_likelihood: LogLikelihood  # (y_sign, f) -> log p(y | f), first and second derivative: vi-taylor, laplace-binary
    third_derivative: Callable[[FloatArray, FloatArray], FloatArray]  # (y_sign, f) -> (b,): gradients of laplace-binary
    expected: Expected  # (y_sign, m, v) -> E log p(y | f) for f ~ N(m, v), its derivatives in m: svi
    prediction: Callable[[FloatArray, FloatArray], Prediction | ProbitPrediction]  # (m, v) -> class probabilities


LINKS: dict[str, BinaryLink] = {
    "logit": BinaryLink(
        log_likelihood=logistic,
        third_derivative=lambda _, latent_values: logit_third(latent_values),  # the same for both labels
        expected=expected_log_logit,
        prediction=logit_prediction,
    ),
    "probit": BinaryLink(
        log_likelihood=probit,
        third_derivative=probit_third,
        expected=expected_log_probit,
        prediction=probit_prediction,
    ),
}


def link_of(likelihood: str) -> BinaryLink:
    """The row of a link.

    Parameters
    ----------
    likelihood : str    a name in `LINKS`

    Raises
    ------
    ValueError    for any other: no link stands in for one that is not there
    """
    one_of("likelihood", likelihood, tuple(LINKS))
    return LINKS[likelihood]
