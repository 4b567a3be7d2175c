"""Whether rounding leaves the answer of a batch fit open: the same fit at neighbouring hyper-parameters."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from reference.common._learning import Hyper
from reference.common._neighbours import Answer, gradient_answers, moment_answers, rounding_doubt
from reference.wenzel2019 import _prior

Fit = TypeVar("Fit", bound=Any)


def certain(
    fit: Fit,
    given: _prior.Inputs,
    tolerance: float,
    again: Callable[[_prior.Inputs], Fit],
    gradients: Callable[[Fit, Hyper], Mapping[str, Any]],
    sites: tuple[str, ...] = (),
) -> Fit:
    """The fit, no longer called converged where its answer moves with the last digits of the prior.

    Parameters
    ----------
    fit : NamedTuple          moments, elbo or log_evidence, converged, reason
    given                     inputs, and the hyper-parameters that the fit is for
    tolerance : float         of the fit
    again : callable          inputs with other hyper-parameters -> their fit
    gradients : callable      fit, hyper-parameters -> derivatives of the evidence by field
    sites : names             of further fields that are claimed

    Returns
    -------
    NamedTuple                `converged` False and `reason` in words where rounding decides
    """
    if not fit.converged:
        return fit
    here = given.hyper
    deviation = float(np.sqrt(here.variance + here.noise))
    evidence = "elbo" if hasattr(fit, "elbo") else "log_evidence"
    moments = ("inducing_mean", "inducing_cov", "latent_mean", "latent_var")

    def answers(there: Hyper) -> dict[str, Answer]:
        value = fit if there is here else again(given._replace(hyper=there))
        derivatives = {
            name: derivative for name, derivative in gradients(value, there).items() if derivative is not None
        }
        return (
            {evidence: Answer(getattr(value, evidence), 1.0)}
            | moment_answers(deviation, **{name: getattr(value, name) for name in moments + sites})
            | gradient_answers(derivatives, here, getattr(fit, evidence))
        )

    reason = rounding_doubt(answers, here, [_prior.matrices(given.X, here).K_ZZ], tolerance=tolerance)
    return fit._replace(converged=not reason, reason=reason)
