"""The same jobs here and on clusters: digits, order, storage, resumption, and what is said of who was lost."""

import os
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fast.blockwise import engines as blockwise
from fast.blockwise.engines import ClusterLostError
from validation import problems
from validation.checks import runner
from validation.checks.core import Compared
from validation.door import storage
from validation.jobs import place as places
from validation.jobs.cluster import Cluster, connected, started
from validation.jobs.job import ClusterError, Folder, Job, JobLostError, OutOfPatienceError
from validation.jobs.run import Processes, engine, run
from validation.jobs.store import Store
from validation.judge import chains

distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra gpc-triad[cluster])")


def draws(count, seconds=0.0):
    return [Job(f"draw-{seed}", (seed, 50, seconds), cost=float(seed % 3)) for seed in range(count)]


def values(actual):
    return {done.job.name: done.value for done in actual}


def work(name):
    import cluster_work

    return getattr(cluster_work, name)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_digits_do_not_depend_on_the_number_of_workers(engines, count):
    here = values(run(work("draw"), draws(8), Processes(1)))
    there = values(run(work("draw"), draws(8), engines(count)))
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_what_jobs_tell_arrives_with_their_answers(engines):
    told = []
    list(run(work("draw"), draws(3), engines(2), listen=told.append))
    assert sorted(told) == [("drew", 0), ("drew", 1), ("drew", 2)]


def test_every_answer_says_where_it_was_computed(engines, clients):
    result = list(run(work("draw"), draws(4), engines(2)))
    workers = set(clients(2).nthreads())
    assert {done.place.worker for done in result} <= workers
    assert all(done.place._replace(worker=places.HERE) == places.here() for done in result)
    assert places.unlike(done.place for done in result) == []
    (line,) = places.summary([(done.place, 1) for done in result])
    assert line.startswith("4 on ")


def test_a_result_is_on_the_disk_before_it_is_seen_and_is_not_computed_again(engines, tmp_path):
    store = Store(tmp_path / "jobs", "draws", ())
    result = run(work("draw"), draws(6), engines(2), store=store)
    first = [next(result) for _ in range(3)]
    assert all(store.path(done.job).is_file() for done in first)
    result.close()  # the coordinator is gone
    kept = len(list((tmp_path / "jobs").iterdir()))
    again = list(run(work("draw"), draws(6), engines(1), store=store))
    assert sum(done.stored for done in again) == kept >= 3
    assert all(np.array_equal(done.value, work("draw")(done.job.unit, print)) for done in again)
    # other code or another question is another file
    assert not any(store.path(job) == Store(tmp_path / "jobs", "others", ()).path(job) for job in draws(6))


def test_a_full_disk_ends_the_run_and_loses_nothing_that_was_written(engines, tmp_path, monkeypatch):
    store = Store(tmp_path / "jobs", "draws", ())
    real, count = os.fsync, iter(range(100))

    def full(handle):
        if next(count) >= 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match="found No space left on device while writing, expected room for the file"):
        list(run(work("draw"), draws(6), engines(2), store=store))
    monkeypatch.undo()
    assert [path.suffix for path in (tmp_path / "jobs").iterdir()] == [".npz"] * 2
    again = list(run(work("draw"), draws(6), engines(2), store=store))
    assert (sum(done.stored for done in again), len(again)) == (2, 6)


def test_a_damaged_result_is_an_error_that_names_the_file(tmp_path):
    store = Store(tmp_path, "draws", ())
    (job,) = draws(1)
    list(run(work("draw"), [job], Processes(1), store=store))
    store.path(job).write_bytes(store.path(job).read_bytes()[:-30])
    with pytest.raises(storage.FileFormatError, match="draw-0-"):
        store.read(job)


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(ValueError, match="found the name 'draw-0' twice, expected every job once"):
        list(run(work("draw"), draws(1) * 2, Processes(1)))


def test_an_error_of_the_work_is_raised_here(engines):
    for who in (engines(1), Processes(1)):
        with pytest.raises(ArithmeticError, match="made up"):
            list(run(work("fail"), [Job("a", 1)], who))


def test_linear_algebra_has_the_threads_that_were_asked_for(clients):
    for count in (1, 2):
        (done,) = run(work("threads"), [Job("a", 0)], Cluster(clients(1), threads=count))
        assert done.value == count


def test_jobs_with_a_patience_get_processes_of_their_own(engines):
    jobs = [Job(f"j{unit}", unit, patience=60.0) for unit in range(2)]
    for who in (Processes(2), engines(2)):
        pids = values(run(work("process"), jobs, who)).values()
        assert len({*pids, os.getpid()}) == 3


def test_a_process_that_dies_loses_its_job_alone(engines):
    jobs = [Job(f"j{unit}", unit, patience=60.0) for unit in range(3)]
    for who in (Processes(2), engines(2)):
        results = {done.job.unit: done for done in run(work("die"), jobs, who)}
        assert (results[0].value, results[2].value) == (0, 2)
        assert isinstance(results[1].lost, JobLostError)
        assert "the process ended with -9" in str(results[1].lost)


def test_a_job_out_of_patience_is_ended(engines):
    for who in (Processes(1), engines(1)):
        (done,) = run(work("loop"), [Job("j1", 1, patience=1.0)], who)
        assert isinstance(done.lost, OutOfPatienceError)


def test_a_shared_folder_is_copied_to_workers_once(engines, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("content")
    folder = Folder.of(tmp_path)
    jobs = [Job(f"j{k}", (folder, "deep/a.txt")) for k in range(2)]
    here = [done.value for done in run(work("read"), jobs, Processes(1), shared=folder)]
    there = [done.value for done in run(work("read"), jobs, engines(1), shared=folder)]
    assert {text for text, _ in here + there} == {"content"}
    assert here[0][1].startswith(str(tmp_path))
    assert len({path for _, path in there}) == 1
    assert not there[0][1].startswith(str(tmp_path))


def test_a_worker_with_other_code_is_named(engines, monkeypatch):
    monkeypatch.setattr(places, "code", iter(["a" * 64, *["b" * 64] * 9]).__next__)
    with pytest.raises(ClusterError, match=r"worker \S+: found code bbbbbbbbbbbb against aaaaaaaaaaaa of the coord"):
        list(run(work("draw"), draws(1), engines(1)))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("here", "cluster: found 'here', expected local, or the address of a scheduler"),
        ("tcp://127.0.0.1:1", "found nobody who answers"),
    ],
)
def test_an_address_where_nobody_is_is_an_error(address, message, monkeypatch):
    monkeypatch.setattr("validation.jobs.cluster.CONNECTING", 1)
    with pytest.raises((ValueError, ClusterError), match=message), engine(address):
        pass


def test_jobs_that_nobody_works_are_given_up(monkeypatch):
    monkeypatch.setattr("validation.jobs.cluster.WITHOUT_WORKERS", 0.2)
    monkeypatch.setattr(Cluster, "check_workers", lambda self: ())
    with (
        started(0, processes=False) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match="found no worker for 0 s with 0 of 3 jobs done, expected at least one"),
    ):
        list(run(work("draw"), draws(3), Cluster(client)))


def test_a_question_under_way_when_the_scheduler_goes_is_not_waited_for():
    client = SimpleNamespace(status="connecting", scheduler=SimpleNamespace(address="tcp://gone"))
    for_ever = threading.Event().wait
    with pytest.raises(ClusterError, match=r"tcp://gone: found the scheduler lost \(client connecting\), expected it"):
        Cluster(client)._answered(for_ever)
    with pytest.raises(ClusterLostError, match=r"found the sums of a sweep lost \(no answer; client connecting\)"):
        blockwise._answered(client, for_ever)


def listening(known):
    """(pid, address) of every socket of internet protocols that listens, in this process and all below it."""
    psutil = pytest.importorskip("psutil")  # distributed needs it too
    me = psutil.Process()
    return {
        (process.pid, str(one.laddr.ip))
        for process in (me, *me.children(recursive=True))
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN and one.laddr.port not in known
    }


@pytest.fixture
def ports_before():
    """Ports on which this process listened before: those of clusters that other tests keep."""
    psutil = pytest.importorskip("psutil")
    return {one.laddr.port for one in psutil.Process().net_connections(kind="inet") if one.laddr}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("opening", "count"),
    [
        (partial(connected, "local", jobs=2), 3),
        (partial(started, 1, processes=False), 1),
        (partial(started, 1, processes=False, protocol="tcp://"), 1),
    ],
    ids=["processes", "inproc", "tcp"],
)
def test_a_cluster_of_this_machine_listens_on_loopback_alone(opening, count, ports_before):
    with opening():
        found = listening(ports_before)
    assert len({pid for pid, _ in found}) >= count  # of each: none of them hides its sockets
    assert {address for _, address in found} == {"127.0.0.1"}


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"expected the extra gpc-triad\[cluster\]"), engine("local"):
        pass


def test_verdicts_are_the_same_on_a_cluster(engines, tmp_path):
    selection = runner.select(check=["identity/x-gpc/latent_mean"], problem=["two-points", "three-points"])
    store = Store(tmp_path / "jobs", selection, runner.TYPES)
    here = runner.run(selection, jobs=1)
    there = runner.run(selection, engine=engines(2), store=store)
    resumed = runner.run(selection, engine=engines(2), store=store)
    strip = [[replace(result, seconds=0.0) for result in value.results] for value in (here, there, resumed)]
    assert strip[0] == strip[1] == strip[2]
    assert sum(count for _, count in there.places) == 2
    assert [s.seconds for s in there.solutions] == [s.seconds for s in resumed.solutions]
    assert all(
        np.array_equal(a.latent_mean, b.latent_mean) for a, b in zip(here.solutions, resumed.solutions, strict=True)
    )
    assert Compared in runner.TYPES


@pytest.mark.slow
def test_data_in_parts_are_judged_on_two_processes(two_processes):
    selection = runner.select(check=["run/*/parts"])
    results = runner.run(selection, engine=two_processes).results
    assert len(results) >= len(selection.pairs) > 0
    assert {result.verdict for result in results} == {"PASS"}


# -- faults in earnest: processes are killed -----------------------------------------------------------------------


@pytest.mark.slow
def test_workers_killed_at_random_moments_lose_nothing(two_processes, killing, kills_wanted):
    expected = values(run(work("draw"), draws(20), Processes(1)))
    with killing(two_processes.client, 2, 20261123, kills_wanted) as killer:
        while killer.wants_more():
            result = values(run(work("draw"), draws(20, seconds=0.1), two_processes, listen=killer.moved))
            assert result.keys() == expected.keys()
            assert all(np.array_equal(result[name], expected[name]) for name in expected)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_job_that_kills_three_workers_is_reported():
    with connected("local", jobs=2) as who:
        results = {done.job.unit: done for done in run(work("die"), [Job(f"j{k}", k) for k in range(4)], who)}
    assert "j1 cost 3 workers their lives" in str(results[1].lost)
    assert [results[k].value for k in (0, 2, 3)] == [0, 2, 3]


@pytest.mark.slow
def test_a_scheduler_that_dies_is_said_and_the_run_goes_on_from_there(tmp_path, scheduler_process):
    process, address = scheduler_process
    store = Store(tmp_path, "draws", ())

    def until_it_is_lost():
        with engine(address) as who:
            for count, _ in enumerate(run(work("draw"), draws(12, seconds=0.2), who, store=store)):
                if count == 2:
                    process.kill()

    with pytest.raises(ClusterError, match="found the scheduler lost"):
        until_it_is_lost()
    again = list(run(work("draw"), draws(12, seconds=0.2), Processes(1), store=store))
    assert sum(done.stored for done in again) >= 3
    assert len(again) == 12


@pytest.mark.slow
def test_a_worker_with_another_kernel_is_named(worker_process):
    with (
        started(1, processes=False, protocol="tcp://") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        worker_process(cluster.scheduler_address, OPENBLAS_CORETYPE="Nehalem")
        client.wait_for_workers(2, timeout=120)
        result = list(run(work("draw"), draws(8, seconds=0.3), Cluster(client)))
    kernels = {done.place.kernel for done in result}
    if len(kernels) == 1:
        pytest.skip(f"the library of linear algebra knows no other kernel than {kernels.pop()}")
    (line,) = places.unlike(sorted({done.place for done in result}))
    assert "Nehalem" in line
    assert "expected the same" in line


@pytest.mark.slow
def test_a_worker_from_another_checkout_is_refused_by_name(worker_process, tmp_path):
    import shutil

    root = Path(__file__).resolve().parents[3]
    for package in places.PACKAGES:
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "fast" / "ledger.py").open("a") as file:
        file.write("\n# one line more\n")
    with (
        started(0, processes=False, protocol="tcp://") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        worker_process(cluster.scheduler_address, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        client.wait_for_workers(1, timeout=120)
        with pytest.raises(ClusterError, match=r"worker tcp://\S+: found code \w+ against \w+ of the coordinator"):
            list(run(work("draw"), draws(1), Cluster(client)))


# -- chains of a sampler -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_chains_in_groups_have_the_digits_of_this_machine_on_any_number_of_workers(engines, count):
    lengths = {"n_chains": 8, "n_draws": 150, "n_warmup": 20, "seed": 6}
    here, there = (
        chains.solve_groups("gibbs-logit", problems.get("two-points"), workers, groups=4, **lengths)
        for workers in (Processes(1), engines(count))
    )
    for name in ("latent_mean", "latent_cov", "latent_mean_se", "probabilities"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    assert there.local.keys() == here.local.keys()
    assert all(np.array_equal(there.local[key], here.local[key]) for key in here.local)
    assert there.settings["computed"][0].startswith(f"{4 + 16} on ")
    assert there.settings["unlike"] == []
