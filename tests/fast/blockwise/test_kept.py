"""Runs on data in parts that end and go on: the digits of one run, and files that belong to another are named."""

import numpy as np
import pytest

from fast.blockwise import engines, kept, multiclass, quadratic, sep, taylor
from fast.blockwise.quadratic import BlockwiseOptions
from fast.blockwise.rows import rows_of
from fast.core.values import Prior


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(11).standard_normal((120, 2))


def run(method, X, *, callback=None, damping=1.0, **kept):
    """Six sweeps at most of a method on leaves of 32 rows."""
    Z = X[::15].copy()
    if method in (*quadratic.METHODS, "vi-taylor"):
        y = (X[:, 0] * X[:, 1] > 0.0).astype(np.int64)
        prior, options = Prior(2.0, np.ones(2), 0.05, 1e-8, Z), BlockwiseOptions(1e-300, 6, callback)
        rows = rows_of(X, y, leaf=32)
        if method == "vi-taylor":
            return taylor.fit(rows, prior, options, **kept)
        return quadratic.fit(method, rows, prior, options, **kept)
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]), axis=1)
    prior = Prior(np.array([1.5, 2.0, 4.5]), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), Z)
    rows = rows_of(X, y, leaf=32)
    if method == "sep":
        return sep.fit(rows, 3, prior, sep.SEPSweeps(tolerance=1e-300, max_iterations=6, callback=callback), **kept)
    given = {"max_iterations": 6, "tolerance": 1e-300, "callback": callback}
    if damping != 1.0:
        given["damping"] = damping
    return multiclass.fit(method, rows, 3, prior, multiclass.METHODS[method].options(**given), **kept)


def ending_at(sweep):
    """A callback under which a run ends as Ctrl-C ends it."""
    calls = []

    def callback(*_):
        calls.append(1)
        if len(calls) == sweep:
            raise KeyboardInterrupt

    return callback


def bits(posterior):
    return posterior.inducing_mean.tobytes() + posterior.inducing_cov.tobytes()


@pytest.mark.parametrize("method", ["x-gpc", "vi-jj", "vi-taylor", "sep", "ep", "gfitc", "pep", "apep", "vi-robust"])
def test_a_run_that_ended_goes_on_to_the_same_bits(X, tmp_path, method):
    whole = run(method, X)
    with pytest.raises(KeyboardInterrupt):
        run(method, X, callback=ending_at(3), checkpoint=tmp_path / "deep" / "sums")
    before = {path: path.stat().st_ino for path in (tmp_path / "deep" / "sums").iterdir()}
    assert len(before) >= 3
    again = run(method, X, checkpoint=tmp_path / "deep" / "sums")
    assert {path: path.stat().st_ino for path in before} == before
    assert bits(again) == bits(whole)
    if hasattr(whole, "log_evidence"):
        assert again.log_evidence == whole.log_evidence


def test_leaves_are_not_visited_for_sums_that_are_kept(X, tmp_path, monkeypatch):
    run("x-gpc", X, checkpoint=tmp_path)
    asked, real = [], engines.Here.total

    def total(self, visit, state):
        asked.append(visit.leaf.__name__)
        return real(self, visit, state)

    monkeypatch.setattr(engines.Here, "total", total)
    run("x-gpc", X, checkpoint=tmp_path)
    assert asked == ["_leaf_digest"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": 1e-12}, "of a run with another data"),
        ({"order": True}, "of a run with another data"),
        ({"damping": 0.25}, r"of a run with damping = 0\.5, expected damping = 0\.25"),
        ({"method": "pep"}, "of a run with .*method = 'ep, 3 classes'.* expected .*method = 'pep, 3 c"),
    ],
)
def test_sums_of_another_run_are_refused_by_name(X, tmp_path, change, message):
    run("ep", X, checkpoint=tmp_path)
    other = X.copy()
    other[77, 1] += change.get("X", 0.0)
    if "order" in change:
        other[[1, 2]] = other[[2, 1]]
    with pytest.raises(ValueError, match=message):
        run(change.get("method", "ep"), other, damping=change.get("damping", 1.0), checkpoint=tmp_path)


def _ones(_leaf, _ready):
    return (np.ones(2),)


def _twos(_leaf, _ready):
    return (np.full(2, 2.0),)


class Alone:
    """One leaf without data."""

    def total(self, visit, state):
        return visit.leaf(None, state) if visit.leaf in (_ones, _twos) else (np.zeros(4, dtype=np.uint64),)

    def missed(self, visit, state):
        """Nothing is kept beside it."""


def test_the_sum_of_another_visit_in_its_place_is_refused(tmp_path):
    def first(leaf):
        return kept.Kept(Alone(), tmp_path, {}, {}).total(engines.Visit(None, leaf), None)

    for _ in range(2):
        np.testing.assert_array_equal(first(_ones)[0], np.ones(2))
    with pytest.raises(ValueError, match=r"of a run with visit = '_ones', expected visit = '_twos'"):
        first(_twos)


def test_a_prior_that_differs_is_named(X, tmp_path):
    y = (X[:, 0] > 0.0).astype(np.int64)
    rows, Z = rows_of(X, y, leaf=32), X[::15].copy()
    quadratic.fit("x-gpc", rows, Prior(2.0, np.ones(2), 0.05, 1e-8, Z), BlockwiseOptions(1e-3), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"of a run with variance = 2\.0, expected variance = 2\.5"):
        quadratic.fit("x-gpc", rows, Prior(2.5, np.ones(2), 0.05, 1e-8, Z), BlockwiseOptions(1e-3), checkpoint=tmp_path)


def test_a_damaged_file_and_a_place_that_is_no_folder_are_errors(X, tmp_path):
    run("x-gpc", X, checkpoint=tmp_path / "a")
    path = tmp_path / "a" / "000002.npz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"checkpoint: found .*000002\.npz that cannot be read"):
        run("x-gpc", X, checkpoint=tmp_path / "a")
    with pytest.raises(OSError, match=r"checkpoint: found .*, expected a folder or a place for one"):
        run("x-gpc", X, checkpoint=path)


def test_a_full_disk_ends_the_run_and_loses_nothing_that_was_written(X, tmp_path, monkeypatch):
    from fast.core import checkpoint

    whole = run("x-gpc", X)
    real, calls = checkpoint.os.fsync, []

    def full(handle):
        calls.append(1)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match=r"found 'No space left on device' when writing .*, expected a folder with room"):
        run("x-gpc", X, checkpoint=tmp_path)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000.npz", "000001.npz"]
    assert bits(run("x-gpc", X, checkpoint=tmp_path)) == bits(whole)


def test_options_that_ask_for_more_than_sweeps_are_refused(X):
    from fast.methods.sep import SEPOptions
    from fast.methods.x_gpc import XGPCLearning

    y = (X[:, 0] > 0.0).astype(np.int64)
    rows, Z = rows_of(X, y, leaf=32), X[::15].copy()
    one, two = (
        Prior(2.0, np.ones(2), 0.05, 1e-8, Z),
        Prior(np.ones(2), np.ones((2, 2)), np.zeros(2), np.full(2, 1e-8), Z),
    )
    for fit in (lambda o: quadratic.fit("x-gpc", rows, one, o), lambda o: taylor.fit(rows, one, o)):
        with pytest.raises(TypeError, match=r"options: found XGPCLearning, expected BlockwiseOptions: .* nothing is"):
            fit(XGPCLearning(learn=("variance",)))
    with pytest.raises(TypeError, match=r"options: found SEPOptions, expected SEPSweeps: .* nothing is learned"):
        sep.fit(rows, 2, two, SEPOptions(learn=("variance",)))
    options = multiclass.METHODS["ep"].options(learn=("variance",))
    with pytest.raises(ValueError, match=r"learn: found \('variance',\), expected \(\): on data in parts the prior is"):
        multiclass.fit("ep", rows, 2, two, options)
