"""The checks of both sides of the numbers at which iterations change their way, and a mistake in each."""

import pytest

from in_every_run import others_slow

_SITES, _OUTER, _MIXING = "identity/epgpc/site_limits", "identity/nested-ep/outer_limits", "identity/ep/mixing_limits"
_FALLING, _OPTIMISERS = "identity/x-gpc-svi/falling_limits", "identity/x-gpc-svi/optimisers"
_BOX, _ROUNDS, _CLASS_BOX = (
    "limit/x-gpc/box_of_a_search",
    "identity/x-gpc/rounds_of_a_search",
    "limit/ep/box_of_a_search",
)
_ASCENT, _WAY = "identity/apep/ascent_limits", "identity/apep/searches_by_the_way"
_SHORTEST, _FULL_BOX = "identity/laplace-binary/shortest_steps", "limit/laplace/box_of_a_search"
_BOUNDED, _INNER, _MANY = (
    "identity/vi-robust/bounded_rates",
    "identity/nested-ep/inner_sweeps",
    "identity/laplace/most_classes",
)
_LOOP, _RUNS = "fast.solve.outer_loop", "fast.sparse_classes.alpha_runs"
_PLANTED = (
    (_SITES, "fast.solve.site_iteration", "_ROUNDED = 1e-8", "_ROUNDED = -1e-8"),
    (_SITES, "fast.solve.site_iteration", "_CIRCLES = 200", "_CIRCLES = 100"),
    (_SITES, "fast.solve.site_iteration", "= 1.05, 4, 1e-2", "= 1.05, 4, 2e-2"),
    (_OUTER, _LOOP, "_PLAIN = 50", "_PLAIN = 51"),
    (_OUTER, _LOOP, "_LOOK_BACK = 5", "_LOOK_BACK = 6"),
    (_MIXING, "fast.sparse_classes.training", "_LAST = 8", "_LAST = 7"),
    (_MIXING, "fast.sparse_classes.fitc_latents", "_LARGEST = 2**20", "_LARGEST = 2**19"),
    (_FALLING, "fast.solve.stopping", "_FALLS = 6", "_FALLS = 7"),
    (_OPTIMISERS, "fast.solve.adam", "0.9, 0.999, 1e-8", "0.9, 0.999, 2e-8"),
    (_OPTIMISERS, "fast.solve.ada_delta", "0.95, 1e-6", "0.95, -1e-6"),
    (_BOX, "fast.one_latent.learning", "_FIRST_ROUND = 2.0", "_FIRST_ROUND = 4.0"),
    (_BOX, "fast.one_latent.learning", "_LARGEST_LOG_MOVE = 20.0", "_LARGEST_LOG_MOVE = 40.0"),
    (_ROUNDS, "fast.one_latent.learning", "_FLAT = 1e-3", "_FLAT = 2e-3"),
    (_CLASS_BOX, "fast.sparse_classes.training", "np.log(1e4)", "np.log(2e4)"),
    (_ASCENT, _RUNS, "_SLACK = 1e-12", "_SLACK = -1e-12"),
    (_ASCENT, _RUNS, "UNBOUNDED = 1e6", "UNBOUNDED = 2e6"),
    (_WAY, _RUNS, "_NEAR = 1e-5", "_NEAR = 2e-5"),
    (_WAY, _RUNS, "10.0, 39, 1e-2", "10.0, 38, 1e-2"),
    (_SHORTEST, "fast.one_latent.mode", "_ROUNDING = 64.0", "_ROUNDING = 128.0"),
    (_SHORTEST, "fast.methods.vi_taylor", "_SHORTEST = 2.0**-40", "_SHORTEST = -(2.0**-40)"),
    (_FULL_BOX, "fast.full_classes.learning", "np.log(1e4)", "np.log1p(1e4)"),
    (_BOUNDED, "fast.sparse_classes.robust_variational", "_LONGEST = 0.5", "_LONGEST = 1.0"),
    (_INNER, "fast.full_classes.inner_ep", "_SWEEPS = 1000", "_SWEEPS = 500"),
    (_INNER, "fast.full_classes.inner_ep", "_ROUNDED = 1e-9", "_ROUNDED = -1e-9"),
    (_INNER, "fast.blockwise.quadratic", "ROUNDED = 1e-9", "ROUNDED = -1e-9"),
    (_MANY, "fast.full_classes.prior", "if n_classes > MOST_CLASSES", "if n_classes >= MOST_CLASSES"),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_fast", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_PLANTED, lambda asked, module, old, new: asked != _SITES)
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_fast", asked, (module, old, new))
