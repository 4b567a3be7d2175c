"""The judge's side of a pytest process that it started: reruns marked tests under perturbation.

Loaded by `-p validation.ledger.pytest_plugin`; without a plan in the environment it does nothing. It imports no
pytest when loaded, so that the package is complete without it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from validation.ledger import numbers, registry
from validation.ledger.collection import PLAN_VARIABLE, Claim, read_claims
from validation.ledger.inventory import Equation
from validation.ledger.leaves import Perturber

if TYPE_CHECKING:
    import pytest


@dataclass
class Group:
    """The cases of one test function: (item, its claims)."""

    key: str
    package: str
    cases: list[tuple[pytest.Item, list[Claim]]] = field(default_factory=list)


@dataclass
class Outcome:
    """What one run of one case came to: passed, failed or skipped; the exception's type; its time."""

    result: str = "passed"
    error: str = ""
    seconds: float = 0.0
    share: float | None = None  # see `validation.ledger.numbers`
    proofs: tuple[tuple[Equation, tuple[float, float]], ...] = ()


class TimeLimit(BaseException):
    """A run took longer than allowed. No Exception, lest the code under test swallow it."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin proper if the judge left a plan."""
    plan = os.environ.get(PLAN_VARIABLE)
    if plan is None:
        return
    options = json.loads(Path(plan).read_text(encoding="utf-8"))
    threading.Thread(target=end_with_parent, args=(options["parent"],), daemon=True).start()
    config.pluginmanager.register(Perturbation(options), "triad-ledger")


class Perturbation:
    """Runs each marked case as it is, then again while one function's output is perturbed."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """plan: what `validation.ledger.collection.run_pytest` wrote: `select`, `slow`, `exhaustive`, `time_limit`."""
        self.plan = plan
        self.root = Path(plan["root"])
        self.packages = tuple(registry.Package(**package) for package in plan["packages"])
        self.outcome = Outcome()
        self.baseline: dict[str, Outcome] = {}
        self.caches: list[Callable[[], Any]] = []
        # (test key or function address, equation) pairs that need no further run.
        self.settled: set[tuple[str, Equation]] = set()

    def emit(self, event: str, **content: Any) -> None:
        """Append one event for the judge to read."""
        with Path(self.plan["events"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": event, **content}) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Name each file that cannot be collected, with the last line of what it raised."""
        if report.failed:
            lines = [line for line in str(report.longrepr).strip().splitlines() if line.strip()]
            reason = next((line[1:].strip() for line in reversed(lines) if line.startswith("E ")), lines[-1])
            self.emit("problem", problem=f"test file {report.nodeid}: failed to collect: {reason}")

    def groups(self, items: Sequence[pytest.Item]) -> list[Group]:
        """Marked items, the cases of one function together; the judge has named faulty markers already."""
        results: dict[str, Group] = {}
        for item in items:
            file = item.path.resolve()
            name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.as_posix()
            inner = item.nodeid.split("::")[1:-1]
            key = "::".join([name, *inner, getattr(item, "originalname", None) or item.name])
            claims: list[Claim] = []
            for mark in item.iter_markers("verifies"):
                with suppress(ValueError):
                    claims += read_claims(mark.args, mark.kwargs)
            if claims:
                parts = name.split("/")
                package = parts[1] if len(parts) > 2 else ""
                results.setdefault(key, Group(key, package)).cases.append((item, list(dict.fromkeys(claims))))
        return list(results.values())

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note the type of what a phase raised; the reports themselves only know its text."""
        if call.excinfo is not None and not self.outcome.error:
            self.outcome.error = call.excinfo.type.__name__

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case failed if any of its phases did; skipped and expected failures prove nothing."""
        if report.failed:
            self.outcome.result = "failed"
        elif report.skipped and self.outcome.result == "passed":
            self.outcome.result = "skipped"

    def run(self, item: pytest.Item, limit: float) -> Outcome:
        """Run one case, all its fixtures from scratch: what a fixture computed before would hide a perturbation."""
        self.outcome = Outcome()
        start = time.perf_counter()
        try:
            with time_limit(limit):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        except TimeLimit:
            # The alarm rang between two phases, where pytest catches nothing: leave no fixture behind.
            item.session._setupstate.teardown_exact(None)
            self.outcome = Outcome("failed", "TimeLimit")
        self.outcome.seconds = time.perf_counter() - start
        if self.outcome.result == "failed" and not self.outcome.error:
            self.outcome.error = "unexpected pass"  # of a strict xfail
        elif self.outcome.result == "passed":
            self.outcome.error = ""
        return self.outcome

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replace pytest's own loop: all cases as they are, then each with each function that it should notice."""
        selected = {(paper, id) for paper, id in self.plan["select"]}
        groups = []
        for group in self.groups(session.items):
            kept = [(item, [claim for claim in claims if claim.equation in selected]) for item, claims in group.cases]
            kept = [(item, claims) for item, claims in kept if claims]
            if not self.plan["slow"]:
                kept = [(item, claims) for item, claims in kept if item.get_closest_marker("slow") is None]
            if kept:
                groups.append(Group(group.key, group.package, kept))
        every = registry.collect(self.packages).functions
        functions = [item for item in every if not item.as_printed]
        jobs = [(group, job) for group in groups for job in self.jobs(group, functions)]
        self.emit("plan", cases=sum(len(group.cases) for group in groups), pairs=len(jobs))
        for group in groups:
            proving = [item.object for item in every if item.package == group.package and item.object is not None]
            for item, claims in group.cases:
                calm(item)
                proof = numbers.Proof(proving if any(claim.printed for claim in claims) else ())
                with numbers.watch() as watched, proof.listening(), self.hooked(group.package, proof):
                    outcome = self.run(item, max(self.plan["time_limit"], 120.0))
                outcome.share, outcome.proofs = watched.share, tuple(proof.values.items())
                self.baseline[item.nodeid] = outcome
                self.emit("baseline", test=group.key, case=item.nodeid, **asdict(outcome))
        self.caches = list(find_caches(self.packages, session))
        for group, (function, scale, equations) in jobs:
            self.trial(group, function, scale, equations)
        return True

    def jobs(
        self, group: Group, functions: Sequence[registry.Function]
    ) -> Iterator[tuple[registry.Function, float, list[Equation]]]:
        """The perturbations a test should notice: each function of its package, at each scale it claims to resolve."""
        claimed: dict[tuple[Equation, float], list[str]] = {}
        for item, claims in group.cases:
            for claim in claims:
                claimed.setdefault((claim.equation, scale_of(claim)), []).append(item.nodeid)
        for function in functions:
            if function.package != group.package:
                continue
            # One run answers for several equations if the very same cases claim them.
            together: dict[tuple[float, tuple[str, ...]], list[Equation]] = {}
            for (equation, scale), cases in claimed.items():
                if equation in function.equations:
                    together.setdefault((scale, tuple(cases)), []).append(equation)
            for (scale, _), equations in together.items():
                yield function, scale, equations

    def trial(self, group: Group, function: registry.Function, scale: float, equations: list[Equation]) -> None:
        """Perturb one function until one case of one test notices; emit what came of it."""
        wanted = [
            equation
            for equation in equations
            if self.plan["exhaustive"]
            or (group.key, equation) not in self.settled
            or (function.address, equation) not in self.settled
        ]
        cases = [
            item
            for item, claims in group.cases
            if self.baseline[item.nodeid].result == "passed"
            and any(claim.equation in equations and scale_of(claim) == scale for claim in claims)
        ]
        # Quick cases first: one that notices is enough.
        cases.sort(key=lambda item: self.baseline[item.nodeid].seconds)
        assert function.object is not None  # collected in this process
        perturber = Perturber(function.object, scale)
        noticed: tuple[str, Outcome] | None = None
        seconds = 0.0
        for item in cases if wanted else []:
            limit = max(self.plan["time_limit"], 3.0 * self.baseline[item.nodeid].seconds)
            with self.perturbed(function, perturber):
                outcome = self.run(item, limit)
            seconds += outcome.seconds
            if outcome.result == "failed":
                noticed = (item.nodeid, outcome)
                self.settled |= {(name, equation) for name in (group.key, function.address) for equation in equations}
                break
        self.emit(
            "trial",
            test=group.key,
            function=function.address,
            equations=equations,
            scale=scale,
            status="not needed" if not wanted else "no case" if not cases else "noticed" if noticed else "survived",
            error=noticed[1].error if noticed else "",
            case=noticed[0] if noticed else "",
            calls=perturber.calls,
            leaves=perturber.leaves,
            seconds=seconds,
        )

    @contextmanager
    def perturbed(self, function: registry.Function, perturber: Perturber) -> Iterator[None]:
        """Set the hook of the function's package; nothing cached crosses into or out of the block."""
        self.forget()
        try:
            with self.hooked(function.package, perturber):
                yield
        finally:
            self.forget()

    @contextmanager
    def hooked(self, package: str, hook: Callable[..., Any]) -> Iterator[None]:
        """Route the outputs of a package's marked functions through a hook; a test of no package has none."""
        names = [known.marker for known in self.packages if known.name == package]
        marker: Any = sys.modules.get(names[0]) if names else None
        if marker is not None:
            marker.hook = hook
        try:
            yield
        finally:
            if marker is not None:
                marker.hook = None

    def forget(self) -> None:
        """Empty every functools cache of the packages and of the test modules."""
        for clear in self.caches:
            clear()


def end_with_parent(parent: int) -> None:
    """End this process once the judge, which started it, is gone: an orphan belongs to another."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def scale_of(claim: Claim) -> float:
    """The size of the perturbation that a claim must notice, relative to the largest entry."""
    return 1e-3 if claim.resolves is None else claim.resolves


def find_caches(packages: Sequence[registry.Package], session: pytest.Session) -> Iterator[Callable[[], Any]]:
    """`cache_clear` of every functools cache reachable from the packages' and the tests' modules."""
    names = {package.name for package in packages}
    modules: dict[int, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in names:
            modules[id(module)] = module
    for item in session.items:
        owner = getattr(item, "module", None)
        if isinstance(owner, ModuleType):
            modules[id(owner)] = owner
    for plugin in session.config.pluginmanager.get_plugins():
        if isinstance(plugin, ModuleType) and Path(plugin.__file__ or "").name == "conftest.py":
            modules[id(plugin)] = plugin
    for module in modules.values():
        for value in list(vars(module).values()):
            members = list(vars(value).values()) if isinstance(value, type) else [value]
            for member in members:
                clear = getattr(member, "cache_clear", None)
                if callable(clear) and not isinstance(member, ModuleType):
                    yield clear


def calm(item: pytest.Item) -> None:
    """Let hypothesis search the same examples each time, stop at the first failure, and write nothing."""
    function: Any = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    if not getattr(function, "is_hypothesis_test", False):
        return
    from hypothesis import HealthCheck, Phase, settings

    # The attribute in which hypothesis keeps what @settings gave; there is no public way to change it afterwards.
    given = getattr(function, "_hypothesis_internal_use_settings", None) or settings()
    function._hypothesis_internal_use_settings = settings(
        given,
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimit in the block after so many seconds, where the system has alarms."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimit(f"{seconds:.0f} s")

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, earlier)
