"""Sentences of a paper beside numbers: what holds, what does not, and what is not decided."""

import numpy as np
import pytest

from validation.claims import inventory
from validation.claims.verdict import FAILS, HOLDS, UNCERTAIN
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.izmailov2016 import sets
from validation.reproduce.riihimaki2013 import fig2, fig5, fig7, fig8
from validation.reproduce.villacampa2017 import fig1 as schedules
from validation.reproduce.villacampa2017 import fig3
from validation.reproduce.villacampa2020 import fig2 as places
from validation.reproduce.villacampa2020 import fig6
from validation.reproduce.wenzel2019 import fig1
from validation.reproduce.wenzel2019 import fig2 as along


@pytest.mark.parametrize(
    ("one", "held"),
    [
        (below("a", "x", 1.0, 2.0), True),
        (below("a", "x", 2.0, 2.0), False),
        (above("a", "x", 1.0, 2.0), False),
        (above("a", "x", 3.0, 2.0), True),
        (below("a", "x", np.nan, 2.0), None),
        (above("a", "x", 1.0, np.inf), None),
    ],
)
def test_an_inequality_holds_fails_or_is_not_decided(one, held):
    assert one.held is held


def test_a_figure_holds_where_everything_does_that_is_said_of_it():
    good, bad = below("a", "x", 1.0, 2.0), below("b", "y", 3.0, 2.0)
    assert decisions.figure("fig", [good, good]).held
    assert decisions.figure("fig", [good, bad]) == Decided(
        "fig", "of 2 comparisons that the text makes of it: do not hold", 1, 0.0, False
    )
    open_one = below("c", "z", np.nan, 1.0)
    assert decisions.figure("fig", [good, open_one]).held is None
    assert decisions.figure("fig", [bad, open_one]).held is False
    table = decisions.table([good, bad, open_one], "text")
    assert table.name == "claims"
    assert [row[-2] for row in table.rows] == [HOLDS, FAILS, UNCERTAIN]


def test_an_interval_that_holds_zero_is_no_proof_that_there_is_no_difference():
    text = "accuracy"
    assert decisions.alike("a", text, (-0.01, 0.015), 0.02, 10).held is True
    assert decisions.alike("a", text, (-0.01, 0.03), 0.02, 10).held is None
    assert decisions.alike("a", text, (0.021, 0.03), 0.02, 10).held is False
    assert decisions.alike("a", text, (-0.03, -0.021), 0.02, 10).held is False
    assert decisions.alike("a", text, (0.005, 0.03), 0.02, 10).held is None
    assert decisions.alike("a", text, (-0.01, 0.015), 0.02, 10).repetitions == 10


def test_a_comparison_says_over_how_many_repetitions_it_was_taken():
    pairs = np.array([0.1, 0.2, 0.15]), np.array([0.3, 0.35, 0.4])
    assert decisions.surely("a", "x", *pairs).repetitions == 3
    assert decisions.below("a", "x", 1.0, 2.0).repetitions == 0
    several = [decisions.surely("a", "x", *pairs), decisions.below("a", "x", 1.0, 2.0, 9)]
    assert decisions.figure("f", several).repetitions == 3
    assert [row[-1] for row in decisions.table(several, "text").rows] == [3, 9]


def known(listed, paper="riihimaki2013"):
    """Their ids, all of them in the inventory."""
    ids = [one.claim for one in listed]
    assert set(ids) <= {claim.id for claim in inventory.load()[paper]}
    return ids


def gaps(**changed):
    ep, iep, truth = "nested-ep", "nested-iep", "gibbs-probit"
    values = {
        "largest": {truth: 0.9, ep: 0.8, iep: 0.7}, "mean": {ep: 0.01, iep: 0.02}, "misfit": {ep: 1.0, iep: 2.0},
        "left": {truth: 0.9, ep: 0.8, iep: 0.7}, "correlation": {truth: 0.5, ep: 0.52, iep: 0.0},
        "right": {truth: 0.5, ep: 0.501, iep: 0.502},
    }  # fmt: skip
    for name, change in changed.items():
        values[name] = values[name] | change
    return [fig2.Gap(**values)]


@pytest.mark.parametrize(
    ("name", "change", "claim"),
    [
        ("largest", {"nested-ep": 0.95}, "fig2-confidence"),
        ("largest", {"nested-iep": 0.85}, "fig2-confidence"),
        ("mean", {"nested-iep": 0.2}, "fig2-means"),
        ("misfit", {"nested-iep": 0.5}, "fig3"),
        ("left", {"nested-iep": 0.85}, "fig3-underestimates"),
        ("correlation", {"nested-ep": 0.4}, "fig4"),
        ("correlation", {"nested-iep": 0.1}, "fig4"),
        ("right", {"nested-iep": 0.52}, "fig4-same-probability"),
    ],
)
def test_each_claim_of_the_line_turns_on_its_own_number(name, change, claim):
    good = fig2.decide(gaps())
    known(good)
    assert all(one.held for one in good)
    failed = {one.claim for one in fig2.decide(gaps(**{name: change})) if not one.held}
    assert failed - {"fig2"} == {claim}


def test_the_misfit_is_a_cross_entropy_of_the_chains():
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((4, 100_000)).T * [1.0, 2.0, 0.5, 1.0] + [0.3, -0.2, 0.1, 0.0]
    mean, cov = np.array([0.1, 0.2]), np.array([[1.5, 0.3], [0.3, 2.0]])
    pad = np.zeros((1, 3))
    full = np.eye(3)
    full[:2, :2] = cov
    truth_cov = np.eye(3)
    truth_cov[:2, :2] = np.cov(draws[:, :2].T, bias=True)
    means = {m: pad.copy() for m in fig2.METHODS}
    means["nested-ep"][0, :2], means["gibbs-probit"][0, :2] = mean, draws[:, :2].mean(axis=0)
    covs = {"gibbs-probit": truth_cov[None], "nested-ep": full[None], "nested-iep": np.eye(3)[None]}
    p = {m: np.full((1, 3), 1.0 / 3.0) for m in fig2.METHODS}
    toy = fig2.Toy(np.zeros((1, 1)), np.zeros(1, dtype=int), np.zeros(1), p, means, covs)
    off = draws[:, :2] - mean
    density = -0.5 * np.einsum("ni,ij,nj->n", off, np.linalg.inv(cov), off) - 0.5 * np.log(
        np.linalg.det(2.0 * np.pi * cov)
    )
    assert fig2.gap(toy, 0, 0, 1.0).misfit["nested-ep"] == pytest.approx(-density.mean(), rel=1e-10)


def surfaces():
    """Peaks of EP's evidence and density at one place, those of the others where the paper has them."""
    grid = np.zeros((3, 2))

    def made(evidence, density, accuracy):
        values = [grid + at for at in (0.0, -60.0, 0.9)]
        values[0][evidence] += 10.0
        values[1][density] += 5.0
        values[2][accuracy] += 0.05
        return fig7.Surfaces(*values, np.ones_like(grid, dtype=bool))

    ep, iep = made((2, 1), (2, 1), (2, 1)), made((2, 1), (1, 1), (2, 1))
    vb, la = made((0, 0), (0, 0), (1, 0)), made((1, 0), (1, 0), (1, 0))
    ep.log_predictive_density[:] += 20.0
    for one in (vb, la):
        one.log_predictive_density[-1] -= 30.0
        one.accuracy[1, 0] += 0.01
    iep.log_predictive_density[2, 1] += 4.0
    return dict(zip(fig7.METHODS, (ep, iep, vb, la), strict=True))


def test_the_claims_of_the_grid_turn_on_their_surfaces():
    def decide(value):
        return fig7.decide(value, (2.0, 5.0, 8.0), (1.5, 2.5))

    good = decide(surfaces())
    known(good)
    assert [one.claim for one in good if not one.held] == []
    for method, name, place, by, claim in (
        ("nested-ep", "log_predictive_density", (0, 0), 30.0, "fig7-ep-agreement"),
        ("laplace", "log_evidence", (2, 1), 20.0, "fig7-vb-la-small"),
        ("vb-probit", "log_predictive_density", (2, 1), 500.0, "fig7-ep-highest"),
        ("vb-probit", "log_evidence", (1, 0), 20.0, "fig7-accuracy"),
        ("laplace", "accuracy", (0, 1), 0.09, "fig7-la-calibrated"),
        ("nested-iep", "log_predictive_density", (0, 0), 30.0, "fig8-good-hyper"),
    ):
        changed = surfaces()
        getattr(changed[method], name)[place] += by
        assert claim in {one.claim for one in decide(changed) if not one.held}, claim
    assert "fig8-good-hyper" not in {one.claim for one in fig7.decide(surfaces(), (2.0, 5.0, 7.0), (1.5, 2.5))}


def pairs(off, narrow, mean=0.0):
    """A method off by that much from its chains, with covariances that many times narrower."""
    rng = np.random.default_rng(7)
    truth = rng.uniform(0.4, 0.8, 6)
    covs = np.tile(np.eye(3), (6, 1, 1))
    se = np.full(6, 1e-3)
    means = np.zeros((6, 3))
    return fig5.Pairs("x", truth + off, truth, se, truth + off, truth, se, means[0], covs[0], means[0], covs[0],
                      means + mean, covs / narrow, means, covs)  # fmt: skip


def test_the_claims_of_the_marginals_turn_on_their_distances():
    methods = dict(zip(fig5.TRUTHS, (pairs(-0.01, 1.0, 0.1), pairs(-0.012, 2.0, 0.2), pairs(-0.1, 2.0, 0.9),
                                     pairs(-0.15, 1.0, 1.0), pairs(-0.05, 1.0, 1.0)), strict=True))  # fmt: skip
    good = fig5.decide(methods)
    known(good)
    assert [one.claim for one in good if not one.held] == []
    for method, changed, claims in (
        ("nested-ep", pairs(-0.2, 1.0, 0.1), {"fig5", "fig5-ep-best"}),
        ("nested-iep", pairs(0.012, 2.0, 0.2), {"fig5", "fig5-iep"}),
        ("laplace", pairs(-0.09, 1.0, 1.0), {"fig5", "fig5-tkp"}),
        ("laplace", pairs(-0.15, 1.0, 0.2), {"fig6", "fig6-la-mode"}),
        ("vb-probit", pairs(0.1, 2.0, 0.9), {"fig5", "fig5-vb-la"}),
        ("vb-probit", pairs(-0.1, 0.5, 0.9), {"fig6", "fig6-iep-vb-narrow"}),
        ("nested-iep", pairs(-0.012, 1.0, 0.2), {"fig6", "fig6-iep-vb-narrow"}),
    ):
        failed = {one.claim for one in fig5.decide(methods | {method: changed}) if not one.held}
        assert claims <= failed, (method, failed)


def test_the_divergence_of_marginals_is_that_of_gaussians():
    value = pairs(0.0, 2.0, 0.3)
    # KL(N(0, 1), N(0.3, 1/2)) in each of three dimensions
    each = 0.5 * (2.0 + 2.0 * 0.09 - 1.0 + np.log(0.5))
    assert fig5._divergence(value) == pytest.approx(3.0 * each, rel=1e-12)


def test_the_claims_of_convergence_turn_on_their_runs():
    names = ("glass", "usps-357")

    def run(late, drift):
        values = np.full(20, 100.0)
        values[5::2] += late
        values[-1] += drift
        return fig8.Run(values, np.zeros(20))

    def decide(**changed):
        runs = {}
        for name in names:
            for inner, late in (("converged", 1.0), ("incremental", 2.0)):
                runs[name, "nested-ep", inner, 0.8] = run(0.1 * late, 0.0)
                runs[name, "nested-iep", inner, 0.8] = run(late, 5.0 if name == "glass" else 4.0)
        last = {(name, method): 100.0 for name in names for method in fig8.METHODS}
        ends = {
            name: fig8.Ends(
                {(m, inner): top for m in fig8.METHODS for inner, top in (("converged", 1.0), ("incremental", 0.7))},
                {"nested-ep": (10, 12), "nested-iep": (20, 24)}, {"nested-ep": 30, "nested-iep": 60},
            )
            for name in names
        }  # fmt: skip
        runs |= changed.get("runs", {})
        ends |= changed.get("ends", {})
        return fig8.decide(runs, last | changed.get("last", {}), ends, names)

    good = decide()
    known(good)
    assert [one.claim for one in good if not one.held] == []
    ends = fig8.Ends({(m, inner): 0.8 for m in fig8.METHODS for inner in fig8.INNER},
                     {"nested-ep": (40,), "nested-iep": (20,)}, {"nested-ep": 60, "nested-iep": 60})  # fmt: skip
    failed = {one.claim for one in decide(ends={"glass": ends}) if not one.held}
    assert failed == {"fig8", "fig8-ep-fewer", "fig8-incremental-damping", "iep-more-iterations"}
    failed = {
        one.claim for one in decide(runs={("glass", "nested-iep", "converged", 0.8): run(0.1, 0.0)}) if not one.held
    }
    assert failed == {"fig8", "fig8-amplitude", "fig8-drift"}
    undecided = decide(last={("glass", "nested-iep"): None})
    assert {one.claim for one in undecided if one.held is None} == {"fig8", "fig8-drift"}


def test_the_claims_of_the_diagonals_count_two_errors_of_the_chains():
    def pair(off, se, scale=1.0):
        return fig1.Paired(np.array([1.0, 2.0]) * scale + off, np.array([1.0, 2.0]) * scale, np.array([se, se]))

    def decide(mean, sd, probability):
        listed = fig1.decide({"mean": mean, "sd": sd, "probability": probability})
        known(listed, "wenzel2019")
        return {one.claim for one in listed if not one.held}

    good = pair(0.1, 0.02), pair(0.02, 0.005), pair(0.01, 1e-3, 0.2)
    assert decide(*good) == set()
    assert decide(pair(0.1, 0.06), *good[1:]) == {"fig1-means"}
    assert decide(good[0], pair(0.1, 0.005), good[2]) == {"fig1-variances"}
    assert decide(*good[:2], pair(0.01, 0.006, 0.2)) == {"fig1-probabilities"}


def test_the_layout_of_points_is_their_median_gap_and_how_many_overlap():
    Z = np.array([[[0.0, 0.0], [0.05, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]])
    edge = np.array([[0.0, 0.0], [9.0, 9.0]])
    got = places.layout(Z, edge)
    assert got.gap == 1.0
    assert got.overlapping == pytest.approx(2.0 / 6.0)
    assert np.isnan(places.layout(Z, np.zeros((0, 2))).gap)


def test_the_claims_of_places_turn_on_their_layouts():
    def decide(**changed):
        value = {(method, alpha): places.Layout(0.3 if method in places.IN_BATCHES else 0.6, 0.0)
                 for method in ("pep", "apep", "arpep", "rpapep") for alpha in (0.0, 0.5, 1.0)}  # fmt: skip
        value["rpapep", 1.0], value["pep", 1.0] = places.Layout(0.2, 0.0), places.Layout(0.6, 0.4)
        listed = places.decide(value | {tuple(key): place for key, place in changed.get("put", {}).items()})
        known(listed, "villacampa2020")
        return {one.claim for one in listed if not one.held} - {"fig2"}

    assert decide() == set()
    for key, place, claim in (
        (("arpep", 0.0), (0.7, 0.0), "fig2-free-gaussian"),
        (("pep", 1.0), (0.6, 0.0), "fig2-pep-overlap"),
        (("apep", 0.5), (0.6, 0.1), "fig2-pep-overlap"),
        (("rpapep", 1.0), (0.4, 0.0), "fig2-rpapep-closer"),
        (("apep", 1.0), (0.8, 0.0), "fig2-alpha-no-influence"),
    ):
        assert claim in decide(put={key: places.Layout(*place)})


def test_the_claims_of_active_learning_need_certainty_over_repetitions():
    rng = np.random.default_rng(5)

    def errors(method, alpha, rule):
        start = 0.4 - 0.1 * alpha
        fall = 0.1 * (1.0 + alpha if method == "pep" else 2.0 - alpha) * (1.0 if rule == "entropy" else 0.5)
        noise = 0.002 * rng.standard_normal((12, 1))
        return start - fall * np.linspace(0.0, 1.0, 6) + noise + 0.001 * rng.standard_normal((12, 6))

    value = {(m, a, r): errors(m, a, r) for m in ("pep", "apep") for a in (0.0, 0.5, 1.0) for r in fig6.RULES}
    listed = fig6.decide(value)
    known(listed, "villacampa2020")
    assert {one.claim for one in listed if not one.held} <= {"fig6", "fig6-alpha-one", "fig7", "fig7-end-alike"}
    swapped = {(m, a, "random" if r == "entropy" else "entropy"): e for (m, a, r), e in value.items()}
    assert all(not one.held for one in fig6.decide(swapped) if one.claim == "fig6-entropy-wins")
    broken = value | {("apep", 1.0, "random"): np.full((12, 6), np.inf)}
    without = fig6.decide(broken)
    assert {one.held for one in without if "APEP: no optimum" in one.compared} == {None}
    assert not any("APEP, " in one.compared for one in without)
    same = {key: value["pep", 0.0, "entropy"] + 0.01 * rng.standard_normal((12, 6)) for key in value}
    assert None in {one.held for one in fig6.decide(same)}


def test_a_method_is_there_at_the_first_run_that_is_near_its_last():
    runs = sets.Runs(np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 5.0]]), np.array([[0.5, 0.895, 0.9], [0.9, 0.7, 0.9]]))
    np.testing.assert_allclose(np.exp(runs.log_time), [2.0, 1.0])
    assert runs.final == [0.9, 0.9]
    assert runs.at(np.array([3.0, 0.1])) == [0.895, 0.9]  # the shortest run where none is as short


def timed(accuracy, seconds, first=0.6):
    """Four splits, three budgets: there at the second."""
    noise = 0.0005 * np.arange(4)[:, None] * [1.0, 1.0, 1.0]
    return sets.Runs(
        seconds * np.array([[0.5, 1.0, 2.0]]) * (1.0 + noise), np.array([[first, accuracy, accuracy]]) + noise
    )


def as_printed():
    """Runs of which everything is true that section 5.2 says."""
    value = {}
    for name in sets.SETS:
        small, skin = name in sets.SETS[:2], name == "skin_nonskin"
        value[name] = {
            "svi": timed(0.9, 0.9 if skin else 2.5, first=0.7),
            "vi-jj": timed(0.9, 1.0),
            "vi-jj-full": timed(0.9 if small else 0.8, 1.5),
            "vi-jj-hybrid": timed(0.9, 1.1, first=0.65),
            "vi-taylor": timed(0.9, 1.0),
        }
    return value


def failed(value):
    listed = sets.decide(value)
    known(listed, "izmailov2016")
    return {one.claim for one in listed if one.held is False}


def test_the_claims_of_six_sets_turn_on_their_runs():
    assert failed(as_printed()) == set()
    missing = {one.claim for one in sets.decide(as_printed()) if one.held is None}
    assert missing == {"jj-taylor-against-hybrid", "full-small-and-a8a"}  # a8a
    for name, method, runs, claims in (
        ("german20", "vi-jj", timed(0.9, 3.0), {"fig4-german"}),
        ("svmguide1", "vi-jj-full", timed(0.9, 0.5), {"fig4-svmguide"}),
        ("magic", "vi-jj", timed(0.9, 1.0, first=0.8), {"fig5-magic-start", "fig5-magic-hybrid"}),
        ("ijcnn1", "vi-taylor", timed(0.9, 4.0), {"fig5-ijcnn-hybrid", "jj-taylor-against-hybrid"}),
        ("ijcnn1", "vi-jj-full", timed(0.9, 1.5), {"fig5-full-fails", "full-small-and-a8a"}),
        ("cod_rna", "vi-jj-full", timed(0.89, 1.5), {"fig6-full-fails"}),
        ("cod_rna", "svi", timed(0.95, 2.5), {"fig6-others-alike", "as-good-or-better"}),
        ("skin_nonskin", "svi", timed(0.9, 0.2), {"svi-small-and-big"}),
        ("magic", "vi-jj-hybrid", timed(0.9, 3.0, first=0.65), {"hybrid-against-svi"}),
    ):
        value = as_printed()
        value[name][method] = runs
        assert claims <= failed(value), (name, method, failed(value))
    slow = {name: runs | {m: timed(0.7, 9.0) for m in ("vi-jj", "vi-jj-hybrid", "vi-taylor")}
            for name, runs in as_printed().items()}  # fmt: skip
    assert {"alike-in-general", "no-tuning"} <= failed(slow)


def run_of(nll, seconds=0.01, error=0.1, confidence=0.7, jump=0.0):
    """Scores after steps 1, 20, 200, 300, ...: near the end from the one on where `nll` is."""
    late = 0.3 + jump * np.array([1.0, -1.0] * 4)
    values = np.concatenate([nll, late])
    steps = np.array([1, 20, 200, *range(300, 1100, 100)])
    return along.Trace(steps, seconds * steps, np.full(len(steps), error), values, confidence)


def printed_curves():
    value = {}
    for name in (*along.FIRST, "magic"):
        value[name] = {
            "x-gpc-svi": [run_of([0.4, 0.3, 0.3], confidence=0.7 + 1e-3 * k, jump=1e-4 * (1 + k)) for k in range(3)],
            "svgpc": [run_of([0.6, 0.5, 0.4], 0.02, 0.12, 0.8 + 2e-3 * k, 1e-3 * (1 + k)) for k in range(3)],
            "epgpc": [run_of([0.6, 0.5, 0.4], 0.02, 0.12, 0.8 + 2e-3 * k, 1e-4 * (1 + k)) for k in range(3)],
        }
    return value


def test_a_run_is_there_once_no_later_score_is_far_from_its_end():
    one = run_of([0.4, 0.3, 0.35])
    assert one.there == 3
    assert one.after(20) == (0.1, 0.3)
    assert one.after(0) == (0.1, 0.4)


def test_the_claims_of_curves_turn_on_their_runs():
    def failed(value):
        listed = along.decide(value)
        known(listed, "wenzel2019")
        return {one.claim for one in listed if not one.held}

    assert failed(printed_curves()) == set()
    for name, method, run, claims in (
        ("electricity", "x-gpc-svi", run_of([0.4, 0.35, 0.3]), {"fig2-close-after-few", "fig2-orders-faster"}),
        ("magic", "svgpc", run_of([0.31, 0.3, 0.3], 0.02), {"fig4", "fig5", "fig6"}),
        ("magic", "svgpc", run_of([0.6, 0.5, 0.4], 0.1, 0.05), {"faster-by-updates", "competitive"}),
        ("magic", "epgpc", run_of([0.6, 0.5, 0.4], 0.02, 0.12, 0.3), {"better-calibrated"}),
        ("cod_rna", "x-gpc-svi", run_of([0.4, 0.3, 0.3], jump=0.01), {"curves-noisy"}),
    ):
        value = printed_curves()
        value[name][method] = [run] * 3
        assert claims <= failed(value), (name, method, failed(value))
    alike = {name: dict.fromkeys(runs, runs["x-gpc-svi"]) for name, runs in printed_curves().items()}
    assert {"speed-up", "faster-on-most"} <= failed(alike)


def test_a_run_is_scored_after_steps_that_grow():
    class Model:
        def fit(self, X, y, callback):
            for self.step in range(1, 11):
                callback(self)

        def predict_proba(self, X):
            p = np.full(len(X), 0.5 + 0.04 * self.step)
            return np.stack([1.0 - p, p], axis=1)

    y = np.array([1, 1, 1, 0])
    got = along.trace(Model(), np.zeros((4, 1)), y, np.zeros((4, 1)), y)
    np.testing.assert_array_equal(got.steps, [1, 2, 3, 4, 6, 8, 10])
    assert got.confidence == pytest.approx(0.9)
    assert got.nll[-1] == pytest.approx(-(3.0 * np.log(0.9) + np.log(0.1)) / 4.0)
    assert (np.diff(got.seconds) > 0.0).all()


def test_the_claims_of_schedules_turn_on_their_ends_and_times():
    def run(seconds, end=100.0, late=False):
        values = np.array([0.0, 50.0, 99.0, end]) if not late else np.array([0.0, 10.0, 20.0, end])
        return schedules.Schedule(values, seconds * np.array([0.0, 1.0, 2.0, 3.0]), ())

    def failed(**changed):
        one = {"outer": run(9.0), "inner-approximate": run(1.0), "inner-exact": run(2.0)} | changed
        noisy = {name: each._replace(seconds=1.01 * each.seconds) for name, each in one.items()}
        listed = schedules.decide([one, noisy, one])
        known(listed, "villacampa2017")
        return {claim.claim for claim in listed if not claim.held}

    assert failed() == set()
    assert failed(outer=run(9.0, -1.0)) >= {"fig1-all-maximise"}
    assert failed(outer=run(9.0, 110.0)) == {"fig1-all-maximise"}
    assert failed(outer=run(1.0)) == {"fig1-inner-faster"}
    assert failed(**{"inner-exact": run(0.5)}) == {"fig1-approximate-gradient"}
    assert failed(**{"inner-exact": run(2.0, 105.0)}) == {"fig1-all-maximise", "fig1-approximate-gradient"}


def test_the_claims_of_learned_points_turn_on_errors_and_places():
    def decide(**changed):
        value = []
        for k in range(4):
            one = {}
            for method in ("gfitc", "ep", "sep", "vi-robust"):
                vi = method == "vi-robust"
                for m, error in ((1, 0.4), (4, 0.2), (8, 0.15), (32, 0.1)):
                    error += (0.1 if vi and m < 32 else 0.0) + 1e-3 * k * (m % 3)
                    one[m, method] = fig3.Learned(error, 0.0 if vi else 0.3 + 0.01 * k, 0.1 + 0.01 * k, 0.5)
            value.append(one | changed.get("put", {}))
        listed = fig3.decide(value)
        known(listed, "villacampa2017")
        return {one.claim for one in listed if not one.held}

    assert decide() == set()
    assert decide(put={(4, "ep"): fig3.Learned(0.5, 0.3, 0.1, 0.5)}) == {"fig3-more-better", "fig3-fewer-suffice"}
    assert decide(put={(32, "sep"): fig3.Learned(0.1, 0.0, 0.1, 0.5)}) == {"fig3-overlap"}
    assert decide(put={(32, "vi-robust"): fig3.Learned(0.1, 0.0, 0.6, 0.5)}) == {"fig3-vi-boundaries"}
