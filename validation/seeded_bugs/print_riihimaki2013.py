"""Bugs of riihimaki2013's printed equations, and of the sites they are held against."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.selftest import SeededBug

_PROBLEMS = ("two-points-3",)


def _softer(original: Any) -> Any:
    def covariance(cavity_cov: Any, B: Any, alpha: Any) -> Any:
        return original(cavity_cov, B, alpha / (1.0 + 1e-6 * alpha))

    return covariance


def _smaller(original: Any) -> Any:
    def moments(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(cov=(1.0 - 1e-6) * correct.cov)

    return moments


def _weaker(original: Any) -> Any:
    return lambda pi, K: (1.0 - 1e-6) * original(pi, K)


def _smaller_pi(original: Any) -> Any:
    def sites(alpha: Any, y: Any) -> Any:
        correct = original(alpha, y)
        return correct._replace(pi=(1.0 - 1e-6) * correct.pi)

    return sites


def _one_root(original: Any) -> Any:
    def blocks(pi: Any, K: Any) -> Any:
        correct = original(pi, K)
        return correct._replace(B=correct.B / np.sqrt(np.maximum(pi, 1e-12)).T[:, :, None])

    return blocks


def _exchanged(original: Any) -> Any:
    return lambda mu, Sigma, B, alpha, beta: original(mu, Sigma, B, beta, alpha)


FAULTS: tuple[SeededBug, ...] = (
    SeededBug(
        "print-riihimaki2013/appendix-b",
        "reference",
        "nested-ep",
        "M of appendix B is a millionth too small",
        ("reference.riihimaki2013.nested_ep:posterior_m_matrix",),
        _weaker,
        _PROBLEMS,
        ("identity/nested-ep/latent_mean",),
    ),
    SeededBug(
        "print-riihimaki2013/qep-pi",
        "reference",
        "qep",
        "appendix B with a millionth missing of each pi of qep's sites",
        ("reference.riihimaki2013.qep:site_precision",),
        _smaller_pi,
        _PROBLEMS,
        ("identity/qep/latent_mean",),
    ),
    *(
        SeededBug(
            f"print-riihimaki2013/{method}-blocks",
            "reference",
            method,
            "blocks of B of independent classes without the root of D on one side",
            (f"reference.riihimaki2013.{module}:class_blocks",),
            _one_root,
            _PROBLEMS,
            (f"identity/{method}/latent_mean",),
        )
        for method, module in (("nested-iep", "nested_ep"), ("qiep", "qep"))
    ),
    SeededBug(
        "print-riihimaki2013/inner-precision",
        "reference",
        "nested-ep",
        "(10) with a millionth added to each inner variance, which no loop of reference calls",
        ("reference.riihimaki2013.sites:tilted_covariance",),
        _softer,
        _PROBLEMS,
        ("print/nested-ep/sites",),
    ),
    SeededBug(
        "print-riihimaki2013/gap-of-exchanged-sites",
        "reference",
        "nested-ep",
        "the gap of section 3.2.2 reads (13) with precisions and shifts exchanged",
        ("reference.riihimaki2013.nested_ep:tilted_mean_augmented",),
        _exchanged,
        _PROBLEMS,
        ("print/nested-ep/sites",),
    ),
    SeededBug(
        "print-riihimaki2013/tilted-covariance",
        "fast",
        "qep",
        "tilted covariances of the differences a millionth too small: Lambda is not what (6) and (18) say",
        ("fast.methods.quadrature_ep:white_moments",),
        _smaller,
        _PROBLEMS,
        ("print/qep/tilted",),
    ),
)
