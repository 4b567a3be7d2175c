"""Sums over leaves on clusters: the same bits with any number of workers, messages counted, faults named."""

import os
import signal

import numpy as np
import pytest

from fast.blockwise import engines, multiclass, quadratic, sep, taylor
from fast.blockwise.batches import batches_from
from fast.blockwise.quadratic import BlockwiseOptions
from fast.blockwise.rows import rows_of
from fast.core import places
from fast.core.values import Data, Prior
from fast.methods import sep as methods_sep

distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra gpc-triad[cluster])")
da = pytest.importorskip("dask.array", reason="dask.array is not installed (extra gpc-triad[cluster])")

OPTIONS = BlockwiseOptions(1e-300, 4)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((1500, 2))
    y = (rng.random(1500) < 1.0 / (1.0 + np.exp(-3.0 * np.sin(2.0 * X[:, 0])))).astype(np.int64)
    return X, y, Prior(2.0, np.array([0.8, 1.3]), 0.0, 1e-8, X[::100].copy())


def bits(posterior):
    return posterior.trace.tobytes() + posterior.inducing_mean.tobytes() + posterior.inducing_cov.tobytes()


@pytest.mark.parametrize("method", ["x-gpc", "vi-jj"])
def test_any_number_of_workers_gives_the_same_bits(case, clients, method):
    X, y, prior = case
    rows = rows_of(X, y, leaf=128)
    here = bits(quadratic.fit(method, rows, prior, OPTIONS))
    for count in (1, 2, 3, 4, 8):
        assert bits(quadratic.fit(method, rows, prior, OPTIONS, client=clients(count))) == here


def test_newton_steps_have_the_same_bits_too(case, clients):
    X, y, prior = case
    rows = rows_of(X, y, leaf=128)
    here = bits(taylor.fit(rows, prior, OPTIONS))
    assert all(bits(taylor.fit(rows, prior, OPTIONS, client=clients(count))) == here for count in (2, 3))


@pytest.fixture(scope="module")
def classes():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 2))
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]), axis=1)
    return X, y, Prior(np.array([1.5, 2.0, 4.5]), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), X[::60].copy())


def in_parts(method, rows, prior, client=None, sweeps=3, callback=None):
    options = multiclass.METHODS[method].options(max_iterations=sweeps, tolerance=1e-300, callback=callback)
    return multiclass.fit(method, rows, 3, prior, options, client=client)


@pytest.mark.parametrize("method", ["ep", "gfitc", "pep", "apep", "vi-robust"])
def test_sites_and_energies_have_the_same_bits_too(classes, clients, method):
    X, y, prior = classes
    rows = rows_of(X, y, leaf=50)
    here = in_parts(method, rows, prior)
    for count in (2, 3):
        there = in_parts(method, rows, prior, clients(count))
        assert there.log_evidence == here.log_evidence
        assert there.inducing_cov.tobytes() == here.inducing_cov.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["x-gpc", "ep"])
def test_a_scheduler_that_dies_under_sweeps_is_said_and_the_run_goes_on_from_there(
    case, classes, clients, scheduler_process, tmp_path, method
):
    process, address = scheduler_process
    X, y, prior = case if method == "x-gpc" else classes
    rows = rows_of(X, y, leaf=128)

    def fit(client=None, callback=None, **kept):
        if method == "x-gpc":
            return quadratic.fit("x-gpc", rows, prior, BlockwiseOptions(1e-300, 6, callback), client=client, **kept)
        options = multiclass.METHODS["ep"].options(max_iterations=6, tolerance=1e-300, callback=callback)
        return multiclass.fit("ep", rows, 3, prior, options, client=client, **kept)

    def kill(*told):
        if (told[0] if method == "x-gpc" else told[0].iteration) == 3:
            process.kill()

    here = fit()
    with (
        distributed.Client(address, set_as_default=False) as client,
        pytest.raises(
            engines.ClusterLostError, match=r"a scheduler that answers; . sums are in .*: the same call goes"
        ),
    ):
        fit(client, kill, checkpoint=tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())}
    assert len(kept) == (3 if method == "x-gpc" else 4)  # ep has its labels counted first
    there = fit(clients(2), checkpoint=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert there.inducing_mean.tobytes() == here.inducing_mean.tobytes()
    assert there.inducing_cov.tobytes() == here.inducing_cov.tobytes()
    assert len(list(tmp_path.iterdir())) > len(kept)


@pytest.mark.slow
def test_sites_of_a_worker_that_died_are_made_again_from_what_sweeps_brought(classes, two_processes):
    X, y, prior = classes
    rows = rows_of(X, y, leaf=50)
    here = in_parts("ep", rows, prior, sweeps=6)
    client, killed = two_processes.client, []

    def kill(progress):
        if progress.iteration == 4:
            (pid, *_) = client.run(os.getpid).values()
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    options = multiclass.METHODS["ep"].options(max_iterations=6, tolerance=1e-300, callback=kill)
    there = multiclass.fit("ep", rows, 3, prior, options, client=client)
    assert len(killed) == 1
    assert there.log_evidence == here.log_evidence
    assert there.inducing_cov.tobytes() == here.inducing_cov.tobytes()


def test_batches_of_rows_on_workers_give_the_steps_of_the_array_path(classes, clients):
    X, y, prior = classes
    rng = np.random.default_rng(3)
    options = methods_sep.SEPOptions(batches=[rng.permutation(400)[:40] for _ in range(4)], learn=("variance",))
    whole = methods_sep.fit(Data(X, y, 3), prior, options)
    rows = rows_of(da.from_array(X, chunks=(64, 2)), da.from_array(y, chunks=64))
    with batches_from(rows, 3, client=clients(3)) as data:
        parts = methods_sep.fit(data, prior, options)
    assert parts.inducing_cov.tobytes() == whole.inducing_cov.tobytes()


def test_tied_factors_have_the_same_bits_too(clients):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((600, 2))
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]), axis=1)
    prior = Prior(np.array([1.5, 2.0, 4.5]), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), X[::60].copy())
    rows, options = rows_of(X, y, leaf=50), sep.SEPSweeps(max_iterations=3)
    here = sep.fit(rows, 3, prior, options)
    for count in (1, 2, 8):
        there = sep.fit(rows, 3, prior, options, client=clients(count))
        assert there.log_evidence == here.log_evidence
        assert there.inducing_cov.tobytes() == here.inducing_cov.tobytes()


def test_collections_of_dask_give_the_bits_of_arrays_cut_alike(case, clients):
    X, y, prior = case
    here = bits(quadratic.fit("x-gpc", rows_of(X, y, leaf=128), prior, OPTIONS))
    rows = rows_of(da.from_array(X, chunks=(128, 1)), da.from_array(y, chunks=500))
    assert [leaf.size for leaf in rows.leaves] == [128] * 11 + [92]
    assert bits(quadratic.fit("x-gpc", rows, prior, OPTIONS)) == here
    assert bits(quadratic.fit("x-gpc", rows, prior, OPTIONS, client=clients(2))) == here
    posterior = quadratic.fit("x-gpc", rows, prior, OPTIONS)
    alone = [part.probabilities for _, part in quadratic.predictions(posterior, rows_of(X, leaf=128))]
    there = list(quadratic.predictions(posterior, rows_of(da.from_array(X, chunks=(128, 2))), client=clients(2)))
    assert [first for first, _ in there] == list(range(0, 1500, 128))
    assert all(np.array_equal(a, b.probabilities) for a, (_, b) in zip(alone, there, strict=True))


def test_a_dataframe_is_taken(case, clients):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed, which dask.dataframe needs")
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    import pandas as pd

    X, y, prior = case
    table = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}), npartitions=5)
    rows = rows_of(table[["a", "b"]], table["y"])
    cut = rows_of([X[leaf.first : leaf.first + leaf.size] for leaf in rows.leaves],
                  [y[leaf.first : leaf.first + leaf.size] for leaf in rows.leaves])  # fmt: skip
    there = quadratic.fit("x-gpc", rows, prior, OPTIONS, client=clients(2))
    assert bits(there) == bits(quadratic.fit("x-gpc", cut, prior, OPTIONS))


def test_a_bad_row_on_a_worker_is_named_by_its_number_among_all(case, clients):
    X, y, prior = case
    X = X.copy()
    X[1234, 0] = np.nan
    with pytest.raises(ValueError, match="X: found a value that is not finite in row 1234, expected finite numbers"):
        quadratic.fit("x-gpc", rows_of(X, y, leaf=128), prior, OPTIONS, client=clients(2))


def test_a_worker_with_another_kernel_is_named(case, clients, monkeypatch):
    X, y, prior = case
    monkeypatch.setattr(engines, "mine", lambda: places.here()._replace(kernel="openblas Prescott", numpy="1.0"))
    with pytest.warns(
        UserWarning, match=r"worker .*: found numpy .* against 1\.0; kernel .* Prescott here, expected the"
    ):
        quadratic.fit("x-gpc", rows_of(X, y), prior, OPTIONS, client=clients(1))


def test_a_worker_that_dies_while_it_is_asked_is_no_other_worker(clients, monkeypatch):
    answers = {"tcp://gone": OSError("closed"), "tcp://here": places.here()}
    monkeypatch.setattr(clients(1), "run", lambda function, on_error: answers)
    engines._alike(clients(1))
    answers["tcp://here"] = ModuleNotFoundError("No module named 'fast'")
    with pytest.raises(engines.ClusterLostError, match="worker tcp://here: found ModuleNotFoundError: No module named"):
        engines._alike(clients(1))


def test_a_worker_with_other_code_is_refused_by_name(case, clients, monkeypatch):
    X, y, prior = case
    monkeypatch.setattr(engines, "mine", lambda: places.here()._replace(code="f00"))
    with pytest.raises(engines.ClusterLostError, match=r"worker .*: found code .* against f00 here, expected the same"):
        quadratic.fit("x-gpc", rows_of(X, y), prior, OPTIONS, client=clients(1))


def test_a_worker_that_dies_while_q_is_on_its_way_to_it_costs_a_second_try(case, clients, monkeypatch):
    X, y, prior = case
    rows = rows_of(X, y, leaf=128)
    client, errors = clients(2), [OSError("Timed out trying to connect to tcp://gone after 30 s")]
    real = client.scatter

    def scatter(*asked, **how):
        if errors:
            raise errors.pop()
        return real(*asked, **how)

    monkeypatch.setattr(client, "scatter", scatter)
    there = quadratic.fit("x-gpc", rows, prior, OPTIONS, client=client)
    assert not errors
    assert bits(there) == bits(quadratic.fit("x-gpc", rows, prior, OPTIONS))


def test_sweeps_that_lose_all_their_workers_are_given_up(case, monkeypatch):
    from validation.jobs.cluster import started

    monkeypatch.setattr(engines, "_WITHOUT_WORKERS", 1.0)
    X, y, prior = case
    with started(1, processes=False) as cluster, distributed.Client(cluster, set_as_default=False) as client:

        def leave(*_):
            cluster.scale(0)
            while client.nthreads():
                pass

        with pytest.raises(engines.ClusterLostError, match=r"found the sums of a sweep lost \(no worker for 1 s; c"):
            quadratic.fit("x-gpc", rows_of(X, y), prior, BlockwiseOptions(1e-300, 9, leave), client=client)


def test_a_client_without_workers_is_an_error(case):
    from validation.jobs.cluster import started

    X, y, prior = case
    with (
        started(0, processes=False) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(engines.ClusterLostError, match="client: found no worker at"),
    ):
        quadratic.fit("x-gpc", rows_of(X, y), prior, OPTIONS, client=client)


@pytest.mark.slow
def test_workers_killed_at_random_moments_of_sweeps_leave_every_bit(two_processes, killing, kills_wanted):
    rng = np.random.default_rng(20261123)
    X = rng.standard_normal((12_000, 2))
    y = (rng.random(12_000) < 1.0 / (1.0 + np.exp(-3.0 * np.sin(2.0 * X[:, 0])))).astype(np.int64)
    prior = Prior(2.0, np.array([0.8, 1.3]), 0.0, 1e-8, X[:80].copy())
    rows = rows_of(X, y, leaf=512)
    here = bits(quadratic.fit("x-gpc", rows, prior, BlockwiseOptions(1e-300, 20)))
    with killing(two_processes.client, 2, 7, kills_wanted) as killer:
        options = BlockwiseOptions(1e-300, 20, killer.moved)
        while killer.wants_more():
            assert bits(quadratic.fit("x-gpc", rows, prior, options, client=two_processes.client)) == here


@pytest.mark.slow
def test_workers_killed_at_random_moments_leave_every_site(two_processes, killing, kills_wanted):
    rng = np.random.default_rng(20261123)
    X = rng.standard_normal((3_000, 2))
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + 0.3 * rng.standard_normal((3_000, 3)), axis=1)
    prior = Prior(np.full(3, 2.0), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), X[:20].copy())
    rows = rows_of(X, y, leaf=256)
    here = in_parts("ep", rows, prior, sweeps=20)
    with killing(two_processes.client, 2, 8, kills_wanted) as killer:
        while killer.wants_more():
            there = in_parts("ep", rows, prior, two_processes.client, sweeps=20, callback=killer.moved)
            assert there.log_evidence == here.log_evidence
            assert there.inducing_cov.tobytes() == here.inducing_cov.tobytes()


def test_a_method_that_takes_no_parts_says_so(case):
    from fast.methods import x_gpc

    X, y, prior = case
    with pytest.raises(
        ValueError, match=r"X: found a collection of Dask \(Array\), expected an array or a numpy.memmap"
    ):
        x_gpc.fit(Data(da.from_array(X), y), prior)
