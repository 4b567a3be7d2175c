"""Sentences about whole tables and about runs beside numbers: what holds where it is so, and fails where it is not."""

from types import SimpleNamespace

import numpy as np
import pytest

from validation.claims import inventory
from validation.reproduce import averages as records
from validation.reproduce import millions
from validation.reproduce.averages import Average, alike, larger_by
from validation.reproduce.protocols import Curve
from validation.reproduce.riihimaki2013 import fig9, times
from validation.reproduce.villacampa2017 import averages as tables23
from validation.reproduce.villacampa2017 import fig4, fig5, setting, uci, updates
from validation.reproduce.villacampa2020 import averages as tablesc
from validation.reproduce.villacampa2020 import fig1, fig3
from validation.reproduce.villacampa2020 import fig4 as digits
from validation.reproduce.wenzel2019 import fig3 as shuttle

ALPHAS = tuple(k / 10 for k in range(11))


def verdicts(listed, paper):
    """Whether all comparisons of each claim hold; the claims are in the inventory."""
    assert {one.claim for one in listed} <= {claim.id for claim in inventory.load()[paper]}
    return {one.claim: all(other.held is True for other in listed if other.claim == one.claim) for one in listed}


# -- tables on record ----------------------------------------------------------------------------------------------


def printed_like(**changed):
    """Averages of four methods on three data sets, as the text has them."""
    nll = {"GFITC": 0.50, "EP": 0.48, "SEP": 0.49, "VI": 1.2} | changed
    seconds = {"GFITC": 3.0, "EP": 2.0, "SEP": 1.0, "VI": 9.0}
    result = {}
    for data in ("glass", "svmguide2", "waveform"):
        for M in tables23.BLOCKS:
            for i, (method, value) in enumerate(nll.items()):
                result[data, M, method, "nll"] = Average(value, 0.01, 20)
                result[data, M, method, "error"] = Average(0.2 + 0.001 * i, 0.01, 20)
                result[data, M, method, "seconds"] = Average(seconds[method] * (1.0 + 0.1 * len(data)), 0.0, 20)
    return result


def test_tables_2_and_3_are_as_the_text_has_them():
    assert set(verdicts(tables23.decide(printed_like()), "villacampa2017").values()) == {True}
    assert not verdicts(tables23.decide(printed_like(EP=0.7)), "villacampa2017")["ep-like-gfitc"]
    assert not verdicts(tables23.decide(printed_like(SEP=0.6)), "villacampa2017")["sep-like-ep"]
    worse = verdicts(tables23.decide(printed_like(VI=0.5)), "villacampa2017")
    assert not worse["vi-nll-worse"]
    assert not worse["vi-bad-predictive"]
    without = {key: value for key, value in printed_like().items() if key[2] != "VI"}
    assert "vi-nll-worse" not in verdicts(tables23.decide(without), "villacampa2017")


def test_tables_of_appendix_c_are_as_the_text_has_them():
    result = {}
    for k, data in enumerate(("a", "b", "c")):
        for method, value in (("MCMC", 0.3), ("Laplace", 0.5), ("PEP (alpha = 0.5)", 0.31 + 0.001 * k)):
            result[data, "5%", method, "nll"] = Average(value, 0.01, 20)
        for method, value in (("MCMC", 1.0), ("PEP (alpha = 0.5)", 90.0 + k)):
            result[data, "5%", method, "seconds"] = Average(value, 0.0, 20)
    assert set(verdicts(tablesc.decide(result), "villacampa2020").values()) == {True}
    other = {key: Average(1.0, 0.01, 20) if key[2] == "PEP (alpha = 0.5)" else value for key, value in result.items()}
    assert set(verdicts(tablesc.decide(other), "villacampa2020").values()) == {False}


def test_records_are_read_and_compared():
    result = records.recorded("villacampa2017-table2")
    assert result["glass", "5%", "EP", "nll"].error > 0.0
    assert [one.held for one in alike("a", "b", [0.1, 0.1, 0.11], [0.1, 0.11, 0.1], 0.05)] == [True, True]
    assert larger_by("a", "b", Average(1.0, 0.1, 20), Average(0.2, 0.1, 20), 0.2).held is True
    assert larger_by("a", "b", Average(0.3, 0.1, 20), Average(0.2, 0.1, 20), 0.2).held is None
    assert larger_by("a", "b", Average(-0.3, 0.1, 20), Average(0.2, 0.1, 20), 0.2).held is False


def test_averages_over_draws_have_the_spread_of_one_more():
    each = [uci.Averages(*(float(k),) * 6) for k in (1.0, 3.0)]
    result = uci.over_draws(each)
    assert (result.nll, result.error, result.seconds) == (2.0, 2.0, 2.0)
    assert result.nll_bar == pytest.approx(np.sqrt(2.0) * np.sqrt(1.5))
    with pytest.raises(ValueError, match="every: found 1 draws"):
        uci.over_draws(each[:1])


# -- ranks and courses ---------------------------------------------------------------------------------------------


def ranked(best):
    """Scores whose least is at `best` by method, with a little noise a setting."""
    rng = np.random.default_rng(3)
    every = []
    for _ in range(8):
        nll = np.array([[0.3 + (a - best[m]) ** 2 + (m == "rpapep") for a in ALPHAS] for m in setting_methods()])
        every.append(fig1.Scores(nll + 1e-3 * rng.random(nll.shape), np.rint(100 * nll), 200, np.ones_like(nll), ()))
    return {("a", 0.05): every[:4], ("b", 0.05): every[4:]}


def setting_methods():
    return ("pep", "apep", "arpep", "rpapep")


def test_ranks_are_as_the_text_has_them():
    good = {"pep": 0.5, "apep": 0.75, "arpep": 0.8, "rpapep": 0.8}
    held = verdicts(fig1.decide(ranked(good), setting_methods(), ALPHAS), "villacampa2020")
    for claim in ("fig1-pep-half", "fig1-apep-arpep", "fig1-rpapep-worst", "half-better", "figd8-arpep"):
        assert held[claim], claim
    bad = verdicts(fig1.decide(ranked(dict.fromkeys(good, 0.0)), setting_methods(), ALPHAS), "villacampa2020")
    for claim in ("fig1", "fig1-pep-half", "fig1-apep-arpep", "half-better", "figd8", "figd8-arpep"):
        assert not bad[claim], claim


def test_what_draws_of_settings_do_not_settle_stays_open():
    for holds, held in ((lambda d: True, True), (lambda d: False, False), (lambda d: bool(d[0] < 6), None)):
        outcome = fig1._often("fig1", "a thing", holds, 12)
        assert outcome.held is held
        assert outcome.limit == 0.95


def course(end, rise=0.0, speed=1.0, steps=10):
    """A score that falls to its end, and rises after it."""
    k = np.arange(steps)
    nll = end + 2.0 ** -(speed * k) - 2.0 ** -(speed * (steps - 1))
    nll[-1] += rise
    return setting.Course(k, 0.1 * (k + 1.0), 0.1 * nll, nll)


def test_courses_of_figure_3_are_as_the_text_has_them():
    ends = {"pep": {0.01: 0.9, 0.3: 0.3, 0.5: 0.31, 0.8: 0.4, 1.0: 0.41, 0.0: 1.0}}
    other = {0.01: 1.0, 0.3: 0.6, 0.5: 0.5, 0.8: 0.4, 1.0: 0.41, 0.0: 1.0}
    jitters = (0.0, 0.001, -0.0005)
    runs = {}
    for method in setting_methods():
        for alpha, end in ends.get(method, other).items():
            shift = -0.1 if method == "apep" and alpha == 0.01 else 0.0
            small = [0.0001, -0.0001, 0.0] if alpha == 0.01 else [0.0, 0.0, 0.0]
            runs[4, method, alpha] = [
                course(end + shift + j + s, speed=3.0 if method == "pep" else 1.0 + j)
                for j, s in zip(jitters, small, strict=True)
            ]
    held = verdicts(fig3.decide(runs), "villacampa2020")
    assert {claim for claim, held in held.items() if not held} == set()
    runs[4, "pep", 0.3] = [course(2.0)] * 3
    assert {"fig3", "fig3-zero-worst", "fig3-pep-best", "figd9"} <= {
        claim for claim, held in verdicts(fig3.decide(runs), "villacampa2020").items() if not held
    }


def test_courses_of_figure_4_are_as_the_text_has_them():
    def runs(vi_rise=0.05):
        result = {}
        for m, slow in ((4, 40), (20, 20)):
            each = {"sep": [], "ep": [], "gfitc": [], "vi-robust": []}
            for k in range(3):
                quick = course(0.4, speed=3.0 + 0.1 * k)
                each["sep"].append(quick)
                each["ep"].append(quick._replace(nll=quick.nll + 0.001))
                slower = course(0.45, speed=1.0 + 0.1 * k, steps=12)
                each["gfitc"].append(slower._replace(seconds=5.0 * slower.seconds))
                last = course(0.6, vi_rise, speed=0.8 + 0.1 * k, steps=12)
                each["vi-robust"].append(last._replace(seconds=slow * last.seconds, error=last.error * 0.0 + 0.3))
            result[m] = each
        return result

    held = verdicts(fig4.decide(runs()), "villacampa2017")
    assert {claim for claim, held in held.items() if not held} == set()
    assert not verdicts(fig4.decide(runs(0.0)), "villacampa2017")["fig6-errors"]
    other = runs()
    other[4]["sep"], other[4]["vi-robust"] = other[4]["vi-robust"], other[4]["sep"]
    held = verdicts(fig4.decide(other), "villacampa2017")
    assert not held["fig4-sep-best"]
    assert not held["converges-in-fewer"] or not held["fig4-vi-small-m"]


def test_digits_of_2020_are_as_the_text_has_them():
    def runs(apep_end=0.30, slow_zero=True):
        result = {}
        for k, method in enumerate(setting_methods()):
            for alpha in (0.0, 0.5, 1.0):
                speed = (1.5 if method == "apep" else 1.0 - 0.1 * k) * (1.2 - 0.4 * alpha)
                one = course(apep_end if method == "apep" else 0.31, speed=speed, steps=40)
                late = one._replace(error=0.02 + 0.5 ** np.arange(40.0)) if slow_zero and alpha == 0.0 else one
                result[method, alpha] = late
        return result

    assert set(verdicts(digits.decide(runs()), "villacampa2020").values()) == {True}
    assert not verdicts(digits.decide(runs(apep_end=0.4)), "villacampa2020")["mnist-similar"]
    assert not verdicts(digits.decide(runs(slow_zero=False)), "villacampa2020")["figd10-half-first"]


def test_digits_of_2017_are_as_the_text_has_them():
    printed = {"sep": {"error": 0.0208, "nll": 0.0725}, "vi-robust": {"error": 0.0202, "nll": 0.0686}}

    def runs(slow=3.0, ep_error=0.0205, sep_nll=0.0722):
        ends = {"ep": (ep_error, 0.071, 1.0), "sep": (0.0212, sep_nll, 1.0), "vi-robust": (0.0199, 0.0690, slow)}
        steps = np.arange(1, 5)
        return {
            method: fig5.Ended(
                setting.Course(steps, scale * steps, np.full(4, error), nll + np.array([0.9, 0.2, 0.005, 0.0])), 0.0014,
                0.004,
            )
            for method, (error, nll, scale) in ends.items()
        }  # fmt: skip

    assert set(verdicts(fig5.decide(runs(), printed), "villacampa2017").values()) == {True}
    assert not verdicts(fig5.decide(runs(slow=0.9), printed), "villacampa2017")["fig5-mnist-faster"]
    assert not verdicts(fig5.decide(runs(ep_error=0.025), printed), "villacampa2017")["fig5-mnist-alike"]
    far = verdicts(fig5.decide(runs(sep_nll=0.085), printed), "villacampa2017")
    assert not far["mnist-sep-nll"]
    assert far["mnist-sep-error"]
    assert set(verdicts(fig5.decide(runs(), {}), "villacampa2017")) == {"fig5-mnist-alike", "fig5-mnist-faster"}
    two = {method: run for method, run in runs().items() if method != "ep"}
    assert "fig5-mnist-alike" not in verdicts(fig5.decide(two, printed), "villacampa2017")


def test_scores_of_digits_have_the_errors_of_their_test_rows():
    p = np.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.5, 0.4, 0.1], [0.2, 0.3, 0.5], [0.8, 0.1, 0.1]])
    y = np.array([0, 1, 1, 2, 0])  # the third row is wrong
    run = SimpleNamespace(course="course", probabilities=lambda X: p)
    ended = fig5._ended(run, fig5.Parts(None, None, np.zeros((5, 1)), y))
    assert ended.course == "course"
    assert ended.error_error == pytest.approx(np.sqrt(0.2 * 0.8 / 5))
    surprise = -np.log([0.7, 0.6, 0.4, 0.5, 0.8])
    assert ended.nll_error == pytest.approx(np.sqrt(np.mean((surprise - surprise.mean()) ** 2) / 5))


def test_curves_on_shuttle_are_as_the_text_has_them():
    def curves(slow=20.0, rough=0.05, few=0.012):
        result = {}
        for method, factor in (("x-gpc-svi", 1.0), ("svgpc", slow), ("epgpc", slow)):
            result[method] = {}
            for m, end in ((16, 0.02), (32, few), (64, 0.011), (128, 0.01)):
                error = np.array([0.2, end + 0.001, end + (rough if method == "svgpc" and m < 128 else 0.0), end])
                result[method][m] = [Curve(factor * m * np.arange(1.0, 5.0), error, error)] * 2
        return result

    assert set(verdicts(shuttle.decide(curves()), "wenzel2019").values()) == {True}
    assert not verdicts(shuttle.decide(curves(slow=3.0)), "wenzel2019")["fig3-fastest"]
    assert not verdicts(shuttle.decide(curves(rough=0.0)), "wenzel2019")["fig3-svgpc-unstable"]
    other = verdicts(shuttle.decide(curves(few=0.03)), "wenzel2019")
    assert not other["fig3-32-enough"]
    assert not other["fig3-more-is-better"]


# -- times and sizes -----------------------------------------------------------------------------------------------


def test_updates_times_and_sizes_are_as_the_text_has_them():
    one, two = [0.0, 0.1, 0.05], [1.0, 1.1, 1.2]
    assert set(verdicts(updates.decide(one, two, two, one), "villacampa2017").values()) == {True}
    assert set(verdicts(updates.decide(two, one, one, two), "villacampa2017").values()) == {False}
    seconds = {"laplace": np.ones(9), "nested-ep": 3.0 * np.ones(9), "vb-probit": 2.9 * np.ones(9),
               "gibbs-probit": 200.0 * np.ones(9)}  # fmt: skip
    assert set(verdicts(times.decide(seconds), "riihimaki2013").values()) == {True}
    other = dict.fromkeys(seconds, 10.0 * np.ones(9)) | {"laplace": np.ones(9)}
    assert set(verdicts(times.decide(other), "riihimaki2013").values()) == {False}
    few = millions.Trained(1.0, 0.1, 1.0)
    for paper in ("villacampa2017", "villacampa2020"):
        assert verdicts(millions.decide(few, few, 1000, "x", 0.2), paper) == {"millions": True}
        assert verdicts(millions.decide(few, few._replace(megabytes=9.0), 1000, "x", 0.2), paper) == {"millions": False}
        assert verdicts(millions.decide(few, few, 1000, "x", 0.05), paper) == {"millions": False}


# -- predictive performance ----------------------------------------------------------------------------------------


def predicted(density, right, n=200):
    """n rows with this mean of log densities and share of hits."""
    hits = np.zeros(n)
    hits[: round(right * n)] = 1.0
    return fig9.Predicted(density + 0.01 * np.cos(np.arange(n)), hits, np.ones(1), np.ones((1, 2)))


def test_figures_9_to_11_are_as_the_text_has_them():
    def found():
        every = {}
        for name in (*fig9._SIX, "usps"):
            level = 0.5 if name == "teaching" else 0.9
            better = 0.2 if name in ("teaching", "segment") else -0.001
            worse = 0.001 if name in ("teaching", "glass") else -0.02
            tkp = -0.1 if name == "teaching" else -0.05
            every[name] = {
                "nested-ep": predicted(-0.3, level),
                "nested-iep": predicted(-0.3 + worse, level),
                "vb-probit": predicted(-0.6, level - 0.02),
                "laplace": predicted(-0.3 + 0.5 * (worse - 0.2), level),
                "laplace-tkp": predicted(-0.3 + tkp, level),
                "gibbs-probit": predicted(-0.3 + better, level),
                fig9._AT_EP: predicted(-0.5, level),
            }
        del every["segment"]["gibbs-probit"]
        return every

    held = verdicts(fig9.decide(found(), 0), "riihimaki2013")
    for claim in ("fig9-iep-worse", "fig9-vb-la-worse", "ep-near-mcmc", "fig10-small", "fig10-vb-hyper",
                  "fig10-tkp-unnecessary"):  # fmt: skip
        assert held[claim], claim
    assert not held["fig9-mcmc-better"]  # one lengthscale: no chains
    assert not held["fig10-teaching"]
    other = found()
    for name in other:
        other[name]["nested-ep"], other[name]["vb-probit"] = other[name]["vb-probit"], other[name]["nested-ep"]
        other[name][fig9._AT_EP] = predicted(-0.5, 0.1)
    held = verdicts(fig9.decide(other, 0), "riihimaki2013")
    for claim in ("fig9", "fig10", "fig9-vb-la-worse", "ep-near-mcmc", "fig10-vb-hyper", "fig10-vb-lowest"):
        assert not held[claim], claim
