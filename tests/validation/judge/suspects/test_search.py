"""What a search for suspects says of sides, words, limits and time."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, ndtr
from scipy.stats import norm

from validation import problems, solve
from validation.judge.compare import compare
from validation.judge.posing import posed
from validation.judge.suspects.search import suspects
from validation.judge.suspects.worst import worst_entry


@pytest.fixture(scope="module")
def fair():
    return solve("fast", "x-gpc", problems.get("toy"))


def test_the_side_that_is_no_witness_is_held_suspect_wherever_it_stands(fair):
    mine = replace(fair, implementation="mine", latent_cov=1.05 * fair.latent_cov)
    (actual,) = suspects(mine, fair, ["latent_cov"]).ranked
    assert actual.text == "left/right = 1.05 in every entry of latent_cov"
    (actual,) = suspects(fair, mine, ["latent_cov"]).ranked
    assert actual.text == "right/left = 1.05 in every entry of latent_cov"
    assert actual.explains == ("latent_cov",)
    assert "difference 0.048 becomes" in actual.sentence


def test_against_a_truth_the_method_of_fast_stands_in():
    problem = problems.get("two-points")
    truth = solve("quadrature", "exact", problem)
    right = solve("reference", "x-gpc", problem)
    suspected = suspects(replace(right, implementation="mine"), truth)
    assert suspected.same
    assert suspected.model == "fast x-gpc"
    wrong = replace(right, implementation="mine", log_evidence=right.log_evidence + 2 * np.log(2.0))
    assert suspects(wrong, truth).ranked[0].name == "constant n log 2"


def test_of_two_suspects_that_explain_alike_the_one_that_leaves_what_agrees_comes_first(fair):
    # columns the other way round, latent means right: y is not coded the other way
    mine = replace(fair, implementation="mine", probabilities=fair.probabilities[:, ::-1])
    first = suspects(mine, fair).ranked[0]
    assert first.text == "probabilities of left has its columns the other way round"
    flipped = replace(mine, latent_mean=-fair.latent_mean, test_latent_mean=-fair.test_latent_mean)
    assert "y is coded the other way" in suspects(flipped, fair).ranked[0].text


@pytest.mark.parametrize(("name", "at"), [("toy", "latent"), ("toy-sparse", "inducing")])
@pytest.mark.parametrize("word", ["whitened", "weights"])
def test_latent_values_in_other_coordinates_are_suspected(name, at, word):
    right = solve("fast", "x-gpc", problems.get(name))
    p, rows = right.problem, getattr(right, f"{at}_mean").reshape(-1)
    A = (p.X if p.Z is None else p.Z[0]) / p.lengthscales[0]
    K = p.variance[0] * np.exp(-0.5 * ((A[:, None] - A[None]) ** 2).sum(axis=-1))
    K += (p.jitter[0] + (p.noise[0] if p.Z is None else 0.0)) * np.eye(len(A))
    back = np.linalg.inv(np.linalg.cholesky(K) if word == "whitened" else K)
    wrong = {f"{at}_mean": (back @ rows).reshape(getattr(right, f"{at}_mean").shape)}
    if at == "inducing":
        wrong["inducing_cov"] = back @ right.inducing_cov @ back.T
    result = suspects(replace(right, implementation="mine", **wrong), right).ranked
    assert result[0].name == word
    assert set(result[0].explains) == set(wrong)


@pytest.mark.parametrize(
    ("name", "word", "change"),
    [
        ("toy", "probit for logistic", lambda m, v: ndtr(m / np.sqrt(8.0 / np.pi + v))),
        ("toy", "half the variance in the integral", lambda m, v: _average(m, v / 2.0)),
        ("toy-probit", "another link", lambda m, v: expit(m / np.sqrt(1.0 + np.pi * v / 8.0))),
        ("toy-probit", "sd in the integral", lambda m, v: ndtr(m / (1.0 + np.sqrt(v)))),
        ("toy-probit", "unit noise left out of the integral", lambda m, v: ndtr(m / np.sqrt(v))),
        ("toy-probit", "twice the variance in the integral", lambda m, v: ndtr(m / np.sqrt(1.0 + 2.0 * v))),
    ],
)
def test_probabilities_by_another_integral_are_suspected(name, word, change):
    right = solve("fast", "laplace-binary", posed(name))
    p = change(right.test_latent_mean[:, 0], right.test_latent_cov[:, 0, 0])
    wrong = replace(right, implementation="mine", probabilities=np.stack([1.0 - p, p], axis=1))
    first = suspects(wrong, right).ranked[0]
    assert (first.name, first.explains) == (word, ("probabilities",))


@pytest.mark.parametrize("count", [5, 20, 32])
def test_a_quadrature_of_few_nodes_is_suspected_with_their_number(count):
    right = solve("fast", "laplace-binary", posed("toy-steep"))
    x, w = np.polynomial.hermite.hermgauss(count)
    f = right.test_latent_mean + np.sqrt(2.0 * right.test_latent_cov[:, 0]) * x
    p = expit(f) @ w / np.sqrt(np.pi)
    wrong = replace(right, implementation="mine", probabilities=np.stack([1.0 - p, p], axis=1))
    assert suspects(wrong, right).ranked[0].text.endswith(f"quadrature of {count} nodes")
    assert not suspects(replace(wrong, probabilities=0.99 * right.probabilities + 0.005), right).ranked


def _average(mean, var):
    """The logistic function's mean, by adaptive quadrature."""

    def one(m, v):
        return quad(lambda f: expit(f) * norm.pdf(f, m, np.sqrt(v)), m - 40.0, m + 40.0, points=[m], limit=200)[0]

    return np.array([one(m, v) for m, v in zip(mean, var, strict=True)])


@pytest.mark.parametrize("how", ["by the first input", "by label", ""])
def test_rows_in_another_order_are_suspected(fair, how):
    p = fair.problem
    order = {"by the first input": np.argsort(p.X[:, 0]), "by label": np.argsort(p.y, kind="stable")}
    rows = order.get(how, np.roll(np.arange(p.n), 3))
    wrong = {name: getattr(fair, name)[rows] for name in ("latent_mean", "latent_cov")}
    first = suspects(replace(fair, implementation="mine", **wrong), fair).ranked[0]
    assert (first.name, first.explains) == ("rows permuted", ("latent_mean", "latent_cov"))
    told = f", sorted {how}" if how else ""
    assert first.text.startswith(f"rows of left are in another order{told}: they are rows {rows[0]}, {rows[1]}, ")


@pytest.mark.parametrize(
    ("word", "changed"),
    [("prior variance left out", {"variance": 1.0}), ("lengthscales left out", {"lengthscales": 1.0})],
)
def test_a_parameter_that_is_left_out_is_suspected(word, changed):
    right = solve("fast", "x-gpc", problems.get("toy"))
    other = solve("reference", "x-gpc", right.problem.replace(**changed))
    first = suspects(replace(other, implementation="mine", problem=right.problem), right).ranked[0]
    assert first.name == word


def test_what_time_does_not_allow_is_named(fair):
    suspected = suspects(replace(fair, implementation="mine", log_evidence=-1.0), fair, seconds=0.0)
    assert suspected.left_out.startswith("not tried in 0 s: noise left out, ")
    assert (
        "changed problems"
        in suspects(replace(fair, implementation="mine", method="own", log_evidence=-1.0), fair).left_out
    )


def test_arguments_are_refused_by_name(fair):
    with pytest.raises(ValueError, match="limit: found 0, expected a number > 0"):
        suspects(fair, fair, limit=0.0)
    with pytest.raises(ValueError, match="seconds: found -1, expected a number >= 0"):
        suspects(fair, fair, seconds=-1.0)
    with pytest.raises(ValueError, match="right: found a solution of another problem"):
        suspects(fair, solve("fast", "x-gpc", problems.get("two-points")))


def test_a_failed_row_names_its_worst_entry(fair):
    mean = fair.latent_mean.copy()
    mean[3, 0] += 0.5
    rows = {row.quantity: row for row in compare(replace(fair, implementation="mine", latent_mean=mean), fair)}
    assert rows["latent_mean"].worst.startswith("latent_mean[3, 0]: left ")
    assert rows["latent_mean"].worst.endswith("left - right +0.5")
    assert rows["latent_cov"].worst == ""


def test_the_worst_entry_of_log_z_is_in_nats_and_nan_is_worst():
    assert worst_entry("log_evidence", -3.0, -2.5) == "log_evidence: left -3, right -2.5, left - right -0.5 nat"
    assert worst_entry("x", [1.0, np.nan, 9.0], [1.0, 2.0, 3.0]).startswith("x[1]: left nan")
    assert worst_entry("x", [1.0], [1.0, 2.0]) == ""
