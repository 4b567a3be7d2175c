"""Draws of a truth: of the posterior that its moments describe, in a file of their own, and as ArviZ takes them."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from scipy.stats import norm

from validation import storage
from validation.truth import draws, library, load


def test_exact_draws_have_the_moments_of_the_truth():
    truth = load("iris-2-40-probit-v4")
    drawn = draws.draw(truth.problem, "exact-probit", seed=5)
    f = drawn.latent.reshape(-1, truth.problem.n)
    mean, cov = truth.solution.latent_mean[:, 0], truth.solution.latent_cov[:, 0, 0]
    error = np.hypot(np.sqrt(cov / len(f)), truth.solution.latent_mean_se[:, 0])
    limit = norm.isf(0.5e-4 / mean.size)  # two-sided, Bonferroni at 1e-4
    assert np.abs((f.mean(axis=0) - mean) / error).max() < limit
    # a second moment about the truth's mean; its variance from the draws themselves
    squares = (f - mean) ** 2
    error = np.hypot(squares.std(axis=0) / np.sqrt(len(f)), truth.solution.latent_cov_se[:, 0, 0])
    assert np.abs((squares.mean(axis=0) - cov) / error).max() < limit


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gp-2-3-logit-v2", "exact"),
        ("gp-2-3-probit-v2", "exact"),
        ("riihimaki-15-softmax-v4.62", "mh-softmax"),
        ("riihimaki-15-mprobit-v4.62", "gibbs-probit"),
        ("villacampa-24-thr-v0-e0.05", "gibbs-threshold"),
    ],
)
def test_every_sampler_gives_its_draws_under_one_shape(name, method):
    problem = library.question(name)
    drawn = draws.draw(problem, method, n_chains=2, n_draws=5)
    assert drawn.latent.shape == (2, 5, problem.n, problem.n_latents)
    assert np.unique(drawn.latent[..., 0, 0]).size == 10
    assert drawn.fingerprint == library.fingerprints()[name]


def test_a_file_of_draws_comes_back_for_its_own_problem_only(tmp_path):
    problem = library.question("gp-2-3-probit-v2")
    drawn = draws.draw(problem, "exact-probit", n_chains=2, n_draws=4)
    drawn.save(tmp_path / "d.npz")
    back = draws.Draws.load(tmp_path / "d.npz", problem)
    assert back._replace(latent=None) == drawn._replace(latent=None)
    # single precision: 24 bits
    np.testing.assert_allclose(back.latent, drawn.latent, rtol=2.0**-23, atol=0)
    with pytest.raises(storage.FileFormatError, match="another digest"):
        draws.Draws.load(tmp_path / "d.npz", library.question("gp-2-3-probit-v0"))
    with pytest.raises(FileNotFoundError, match="found no file"):
        draws.Draws.load(tmp_path / "none.npz", problem)


def test_another_method_is_refused():
    with pytest.raises(ValueError, match="method: found 'ep'"):
        draws.draw(library.question("gp-2-3-probit-v2"), "ep")


def test_a_truth_without_a_file_of_draws_says_how_to_get_one():
    with pytest.raises(ValueError, match="triad truths gp-2-3-probit-v2 --draws FILE"):
        load("gp-2-3-probit-v2").to_arviz()


def test_without_arviz_the_extra_is_named(tmp_path, monkeypatch):
    truth = load("gp-2-3-probit-v2")
    draws.draw(truth.problem, "exact-probit", n_chains=1, n_draws=4).save(tmp_path / "d.npz")
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"gpc-triad\[arviz\]"):
        truth.to_arviz(tmp_path / "d.npz")


@pytest.mark.parametrize("modern", [False, True])
def test_arviz_gets_chains_draws_data_and_latents_by_name(tmp_path, monkeypatch, modern):
    def old(posterior=None, *, coords=None, dims=None, attrs=None):
        return posterior, coords, dims

    def new(data, *, coords=None, dims=None, attrs=None):
        return data["posterior"], coords, dims

    truth = load("gp-2-3-probit-v2")
    drawn = draws.draw(truth.problem, "exact-probit", n_chains=2, n_draws=4)
    drawn.save(tmp_path / "d.npz")
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=new if modern else old))
    posterior, coords, dims = truth.to_arviz(tmp_path / "d.npz")
    np.testing.assert_array_equal(posterior["f"], draws.Draws.load(tmp_path / "d.npz", truth.problem).latent)
    assert posterior["f"].shape == tuple(len(coords[axis]) for axis in ("chain", "draw", *dims["f"]))
