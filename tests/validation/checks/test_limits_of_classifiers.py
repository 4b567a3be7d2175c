"""The checks of both sides of the numbers at which classifiers decide, and a mistake in each."""

import pytest

from in_every_run import others_slow

_STARTS, _ERRORS = "identity/x-gpc/limits_of_starts", "identity/vi-robust/believed_errors"
_SWEEPS, _WAY = "identity/sep/affordable_sweeps", "identity/laplace/on_the_way"
_EXPLAINED = "identity/sep/explained_rows"
_CLASSES = "fast.estimators._classes"
_PLANTED = (
    (_STARTS, "fast.estimators._base", "_LARGEST = 1e50", "_LARGEST = 2e50"),
    (_STARTS, "fast.estimators.multiclass", "_PART = 400", "_PART = 200"),
    (_ERRORS, _CLASSES, "= 0.1, 0.01, 0.2, 0.9", "= 0.1, 0.01, 0.4, 0.9"),
    (_ERRORS, _CLASSES, "= 0.1, 0.01, 0.2, 0.9", "= 0.1, 0.01, 0.2, 1.8"),
    (_SWEEPS, _CLASSES, "_WORK = 1e8", "_WORK = 2e8"),
    (_WAY, "fast.estimators.multiclass", "_LEARNING_ITERATIONS = 100", "_LEARNING_ITERATIONS = 200"),
    (_EXPLAINED, "fast.sparse_classes.stream", "_EXPLAINED = 1e-3", "_EXPLAINED = 2e-3"),
    (_EXPLAINED, "fast.one_latent.online", "_EXPLAINED = 1e-3", "_EXPLAINED = 2e-3"),
)
# modules that took names from the one that is changed, which the package of classifiers has imported
_IMPORTERS = {
    "fast.estimators._base": ("fast.estimators.binary", "fast.estimators.multiclass", "fast.estimators"),
    "fast.estimators.multiclass": ("fast.estimators",),
    _CLASSES: ("fast.estimators.villacampa2017", "fast.estimators.villacampa2020", "fast.estimators"),
}


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_classifiers", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_PLANTED, lambda asked, module, old, new: asked != _STARTS)
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_classifiers", asked, (module, old, new), _IMPORTERS.get(module, ()))
