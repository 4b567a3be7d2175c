"""The programs of each library where it is installed: what agrees with `fast`, and the causes of what does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from validation.door.solve import solve
from validation.judge.posing import posed
from validation.peers import gpml_models, programs, sklearn_models

PROGRAMS = {program.name: program for program in programs()}
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples" / "peers"

MOMENTS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov")

# what each program gives to so much of the same method of `fast`
AGREES = [
    ("sklearn-laplace", "toy", ("log_evidence", *MOMENTS), 1e-8),
    ("sklearn-laplace", "toy", ("probabilities",), 2e-4),  # a sum of five error functions for the logistic
    ("gpflow-vgp-logit", "toy", ("log_evidence", "latent_mean", "latent_cov", "probabilities"), 1e-6),
    ("gpytorch-polya-gamma", "toy", ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov"), 1e-8),
    ("gpytorch-variational", "toy-probit", ("log_evidence", "latent_mean", "probabilities"), 1e-3),  # its log Φ
    ("gpy-ep", "toy-probit", ("log_evidence", "latent_mean", "latent_cov", "probabilities"), 1e-6),
    ("gpy-laplace", "toy-probit", ("log_evidence", "latent_mean", "latent_cov", "probabilities"), 1e-6),
    ("kernlab-gausspr", "toy", ("latent_mean", "test_latent_mean"), 1e-8),
]


@pytest.mark.parametrize(
    ("name", "problem", "quantities", "limit"), AGREES, ids=[f"{a}-{c[0]}" for a, _, c, _ in AGREES]
)
def test_a_program_agrees_with_fast(name, problem, quantities, limit):
    program = PROGRAMS[name]
    if not program.installed():
        pytest.skip(f"{program.library} is not installed")
    if program.library == "gpytorch" and "tensorflow" in sys.modules:
        pytest.skip("TensorFlow is loaded: one process does not bear both")
    (method,) = program.methods
    mine, ours = program(method, posed(problem)), solve("fast", method, posed(problem))
    for quantity in quantities:
        a, b = np.asarray(getattr(mine, quantity)), np.asarray(getattr(ours, quantity))
        assert np.abs(a - b).max() <= limit * np.abs(b).max(), quantity


def test_one_against_rest_gives_probabilities_and_refuses_parameters_of_a_class():
    problem = posed("toy-3-softmax")
    answer = sklearn_models.one_against_rest("one-vs-rest", problem)
    np.testing.assert_allclose(answer.probabilities.sum(axis=1), 1.0)
    with pytest.raises(NotImplementedError, match="parameters for each class"):
        sklearn_models.one_against_rest("one-vs-rest", problem.replace(shared=False, noise=[0.1, 0.1, 0.3]))
    with pytest.raises(NotImplementedError, match="no test points"):
        sklearn_models.one_against_rest("one-vs-rest", problem.replace(X_test=None, y_test=None))


SHOWN = {  # what docs/league.md says that each prints
    "gpytorch_log_normal_cdf.py": ("gpytorch", "-1.8e-06 -4.8e-05 -2.9e-04 -1.9e-03 0.0e+00"),
    "gpflow_probit.py": ("gpflow", "0.0010 0.9990"),
    "gpflow_sigmoid.py": ("gpflow", "-36.04 -inf"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_of_a_peer_is_still_so(name):
    module, printed = SHOWN[name]
    pytest.importorskip(module)
    code = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(
        code, capture_output=True, text=True, check=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    assert done.stdout.splitlines()[-1] == printed


def test_the_page_has_what_each_example_prints():
    page = (ROOT / "docs" / "league.md").read_text(encoding="utf-8")
    for name, (_, printed) in SHOWN.items():
        assert f"examples/peers/{name}" in page
        assert f"`{printed}`" in page


GP = """
function varargout = gp(hyp, inf, mean, cov, lik, x, y, xs, ys)
d = size(x, 2); ell = exp(hyp.cov(1:d)); sf2 = exp(2 * hyp.cov(d + 1)); n = size(x, 1);
sn2 = 0; if numel(hyp.cov) > d + 1, sn2 = exp(2 * hyp.cov(d + 2)); end
sq = @(a, b) sum(a .^ 2, 2) + sum(b .^ 2, 2)' - 2 * a * b';
k = @(a, b) sf2 * exp(-0.5 * sq(a ./ ell', b ./ ell'));
K = k(x, x) + sn2 * eye(n); f = zeros(n, 1);
for i = 1:100
  p = 1 ./ (1 + exp(-f)); W = p .* (1 - p);
  f = K * ((eye(n) + diag(W) * K) \\ (W .* f + (y + 1) / 2 - p));
end
p = 1 ./ (1 + exp(-f)); W = p .* (1 - p); B = eye(n) + sqrt(W) .* K .* sqrt(W)'; g = (y + 1) / 2 - p;
if nargin < 8
  varargout{1} = 0.5 * f' * g + sum(log(1 + exp(-y .* f))) + sum(log(diag(chol(B)))); return
end
Ks = k(x, xs) + sn2 * (sq(x, xs) < 1e-12); v = sqrt(W) .* Ks;
fs2 = sf2 + sn2 - sum(v .* (B \\ v), 1)'; fmu = Ks' * g;
varargout = {fmu, fs2, fmu, fs2, log(1 ./ (1 + exp(-fmu ./ sqrt(1 + pi * fs2 / 8))))};
end
"""


def test_gpml_is_called_with_its_own_parameters(tmp_path, monkeypatch):
    # a stand-in with GPML's call and Laplace's approximation: what is tested is the caller
    if shutil.which("octave") is None:
        pytest.skip("octave is not installed")
    (tmp_path / "gp.m").write_text(GP)
    (tmp_path / "startup.m").write_text("addpath(fileparts(mfilename('fullpath')));\n")
    for name in ("infLaplace", "infEP", "meanZero", "covSEard", "covNoise", "covSum", "likErf", "likLogistic"):
        (tmp_path / f"{name}.m").write_text(f"function {name}(varargin), end\n")
    monkeypatch.delenv("GPML", raising=False)
    assert not gpml_models.laplace.installed()
    monkeypatch.setenv("GPML", str(tmp_path))
    assert gpml_models.laplace.installed()
    problem = posed("toy")
    mine, ours = gpml_models.laplace("laplace-binary", problem), solve("fast", "laplace-binary", problem)
    for quantity in ("log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov"):
        np.testing.assert_allclose(getattr(mine, quantity), getattr(ours, quantity), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mine.probabilities, ours.probabilities, atol=0.02)  # MacKay's formula in the stand-in
