"""log Z of probit and threshold chains: both routes against quadrature, for every likelihood, prior and error rate."""

import numpy as np
import pytest

from gibbs.core.options import HELD
from gibbs_samplers import sample_probit, sample_threshold
from validation import Problem, solve
from validation.implementations.gibbs.evidence import probit_routes

Routes = HELD["gibbs-threshold"]

X = np.array([[0.0, 0.3], [0.8, -0.4]])


def problem(likelihood, prior_model="full", epsilon=0.0, **changes):
    C = 2 if likelihood in ("probit", "logit") else 3
    fields = {
        "name": "two", "X": X, "y": np.array([0, C - 1]), "n_classes": C, "likelihood": likelihood,
        "variance": 3.0 if C == 2 else np.array([3.0, 1.0, 5.0]), "lengthscales": np.array([0.9, 1.4]), "noise": 0.4,
        "jitter": 1e-3, "Z": np.array([[0.2, 0.0], [-0.7, 0.4]]) if prior_model == "fitc" else None,
        "prior_model": prior_model, "epsilon": epsilon,
    }  # fmt: skip
    return Problem(**(fields | changes))


def chains_of(p):
    inputs = (p.X, p.y, p.n_classes, p.variance, p.lengthscales, p.noise, p.jitter, p.Z, p.prior_model)
    run = {"n_chains": 16, "n_draws": 400, "n_warmup": 50, "seed": 2, "smoothness": p.smoothness}
    if p.likelihood == "threshold":
        return sample_threshold(*inputs, epsilon=p.epsilon, **run)
    return sample_probit(*inputs, likelihood=p.likelihood, **run)


def routes_of(p, chains, **changes):
    return probit_routes(p, chains, Routes(**({"seed": 7, "target_error": 0.04} | changes)))


CASES = [
    problem("probit"),
    problem("probit", "fitc"),
    problem("multinomial-probit"),
    problem("multinomial-probit", "fitc", kernel="matern", smoothness=1.5),
    problem("threshold"),
    problem("threshold", "fitc", 0.2),
]


@pytest.mark.parametrize("asked", CASES, ids=lambda p: f"{p.likelihood}-{p.prior_model}-{p.epsilon}")
def test_both_routes_meet_quadrature(asked):
    truth = solve("quadrature", "exact", asked)
    routes = routes_of(asked, chains_of(asked), evidence="all")
    assert set(routes) == {"bridge", "sequential"}
    for value in routes.values():
        assert value.trusted
        assert value.standard_error <= 0.04
        # two-sided, Bonferroni at 1e-4 over twelve statistics: 4.5
        assert abs(value.value - truth.log_evidence) < 4.5 * value.standard_error


def test_only_the_routes_asked_for_are_taken_and_a_seed_fixes_them():
    asked = CASES[4]
    chains = chains_of(asked)
    assert routes_of(asked, chains, evidence="none") == {}
    first, again, other = (routes_of(asked, chains, seed=seed, evidence="chains") for seed in (7, 7, 8))
    assert set(first) == {"bridge"}
    assert first["bridge"].value == again["bridge"].value != other["bridge"].value
    both, alone = (routes_of(asked, chains, evidence=routes) for routes in ("all", "particles"))
    assert set(alone) == {"sequential"}
    assert alone["sequential"] == both["sequential"]  # particles never see the draws, nor the other route's stream
    assert both["bridge"] == first["bridge"]


@pytest.mark.parametrize(
    ("method", "asked", "route"),
    [
        ("gibbs-logit", problem("logit"), "annealed"),
        ("mh-softmax", problem("softmax"), "annealed"),
        ("gibbs-pairwise", problem("threshold"), "sequential"),
        ("gibbs-threshold", problem("threshold"), "sequential"),
    ],
)
def test_every_chain_gives_log_z_by_particles_alone(method, asked, route):
    run = {"n_chains": 4, "n_draws": 4, "n_warmup": 0, "target_error": 0.05}
    solution = solve("gibbs", method, asked, evidence="particles", **run)
    names = [name for name in solution.local if name.startswith("log_evidence_")]
    assert names == [f"log_evidence_{route}"]
    assert solution.log_evidence_se <= 0.05


def test_an_error_that_cannot_be_reached_is_not_trusted():
    asked = CASES[4]
    actual = routes_of(asked, chains_of(asked), evidence="chains", target_error=1e-6)["bridge"]
    assert not actual.trusted
    assert actual.standard_error > 1e-6
