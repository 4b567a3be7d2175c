"""Draws of a truth: of the posterior that its moments describe, in a file of their own, and as ArviZ takes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from validation.door import storage
from validation.jobs.run import Processes
from validation.truth import draws, library, load, shelf

ROOT = Path(__file__).resolve().parents[3]


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
    with pytest.raises(ValueError, match="triad truth show gp-2-3-probit-v2 --draws FILE"):
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


# -- a folder of them ------------------------------------------------------------------------------------------------

NAMES = ["gp-2-3-probit-v0", "gp-2-3-probit-v2"]


def test_a_folder_is_filled_once_and_a_damaged_file_is_drawn_anew(tmp_path):
    first = list(draws.draw_all(NAMES, tmp_path, Processes(1)))
    assert [(done.name, done.what) for done in first] == [(name, "drawn") for name in NAMES]
    kept = (tmp_path / f"{NAMES[0]}.npz").read_bytes()
    (tmp_path / f"{NAMES[0]}.npz").write_bytes(kept[:-30])
    # of another problem under this name
    (tmp_path / f"{NAMES[1]}.npz").write_bytes(kept)
    assert [done.what for done in draws.draw_all(NAMES, tmp_path, Processes(1))] == ["drawn", "drawn"]
    assert (tmp_path / f"{NAMES[0]}.npz").read_bytes() == kept
    assert [done.what for done in draws.draw_all(NAMES, tmp_path, Processes(1))] == ["there", "there"]


def test_sampled_parameters_and_rows_that_are_not_at_hand_are_left_out_by_name(tmp_path, monkeypatch):
    learnt = "gp-2-20-probit-v0-learnt"
    done = draws.work(draws.Drawing(learnt, tmp_path / "a.npz"), print)
    assert done.what == "left out"
    assert "whose parameters are sampled" in done.line
    hidden = next(name for name in shelf.made() if library.get(name).withheld)
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    for cached in (shelf.load, library.question, library._distinct):
        cached.cache_clear()
    done = draws.work(draws.Drawing(hidden, tmp_path / "b.npz"), print)
    assert done.what == "left out"
    assert "TRIAD_DATA" in done.line
    assert not list(tmp_path.iterdir())


def test_the_second_distribution_has_the_version_of_the_first():
    first, second = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (ROOT, ROOT / "distributions" / "truths")
    )
    assert second["version"] == first["version"]
    assert second["name"].replace("-", "_") == draws.DISTRIBUTION
    assert (ROOT / "distributions" / "truths" / "src" / draws.DISTRIBUTION / "__init__.py").is_file()


def test_installed_draws_need_no_file(tmp_path, monkeypatch):
    pytest.importorskip("hatchling", reason="builds of the wheel need the build backend here: no network is asked")
    tree = tmp_path / "truths"
    shutil.copytree(ROOT / "distributions" / "truths", tree, ignore=shutil.ignore_patterns("*.npz"))
    name = NAMES[1]
    assert draws.installed(name) is None
    truth = load(name)
    draws.draw(truth.problem, "exact-probit", n_chains=2, n_draws=4).save(
        tree / "src" / draws.DISTRIBUTION / f"{name}.npz"
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "-q", "install"),
            *("--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site"), str(tree)),
        ],
        check=True,
        timeout=300,
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=lambda posterior, **rest: posterior))
    assert truth.to_arviz()["f"].shape == (2, 4, truth.problem.n, 1)
    with pytest.raises(ValueError, match="none of this posterior"):
        load(NAMES[0]).to_arviz()
    monkeypatch.delitem(sys.modules, draws.DISTRIBUTION, raising=False)
