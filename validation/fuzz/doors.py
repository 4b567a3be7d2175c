"""The calls that bad and extreme values are put into: every public way in, each with arguments that are right."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from validation import arguments
from validation.fuzz.values import HYPER
from validation.options import options_of
from validation.problem import BINARY_LIKELIHOODS, LIKELIHOODS, Problem
from validation.solve import methods, solve

Arguments = dict[str, Any]

# how little is enough: sizes of what is not changed by a draw
_SMALL: Arguments = {
    "max_iterations": 12, "n_steps": 2, "n_draws": 8, "n_warmup": 4, "n_chains": 2, "max_warmup": 512, "thin": 1,
    "max_proposals": 20_000, "n_walkers": 16, "learning_iterations": 2, "evidence": "none", "n_particles": 4,
    "n_islands": 4, "max_rounds": 1, "prediction_nodes": 6, "digits": 3.0, "target_error": 0.5,
}  # fmt: skip


class Door(NamedTuple):
    """A way in: `base` gives arguments that are right, `call` makes the call, `kinds` says what may be changed."""

    name: str
    weight: float
    base: Callable[[np.random.Generator], Arguments]
    call: Callable[[Arguments], Any]
    kinds: Mapping[str, str]  # of arguments, those that the base leaves out too: array, labels, any


def _data(rng: np.random.Generator, likelihood: str | None = None) -> Arguments:
    """A small problem's fields; one in three has extreme numbers."""
    likelihood = likelihood or str(rng.choice(LIKELIHOODS))
    C = 2 if likelihood in BINARY_LIKELIHOODS else int(rng.integers(2, 4))
    L = 1 if likelihood in BINARY_LIKELIHOODS else C
    n, d, m = int(rng.integers(C, 7)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    X = rng.standard_normal((n, d))
    y = rng.permutation(np.arange(n) % C)
    found: Arguments = {
        "name": "drawn",
        "X": X,
        "y": y,
        "n_classes": C,
        "likelihood": likelihood,
        "variance": np.exp(rng.normal(size=L)),
        "lengthscales": np.exp(rng.normal(size=(L, d))),
        "noise": rng.choice([0.0, 0.1], size=L),
        "jitter": np.full(L, 1e-6),
        "Z": rng.standard_normal((L, m, d)),
        "X_test": rng.standard_normal((2, d)),
        "epsilon": float(rng.choice([0.0, 0.01])) if likelihood == "threshold" else 0.0,
    }
    if rng.random() < 0.33:
        _extreme(rng, found)
    return found


def _extreme(rng: np.random.Generator, found: Arguments) -> None:
    what = str(
        rng.choice(["variance", "lengthscales", "noise", "jitter", "offset", "equal rows", "near rows", "scale"])
    )
    if what in found:
        found[what] = np.full_like(found[what], rng.choice(HYPER))
    elif what == "offset":
        move = rng.choice([1e3, 1e6, 1e12])
        found.update({key: found[key] + move for key in ("X", "Z", "X_test")})
    elif what == "scale":
        factor = rng.choice([1e-6, 1e3, 1e6])
        found.update({key: found[key] * factor for key in ("X", "Z", "X_test")})
    else:
        near = 0.0 if what == "equal rows" else 1e-9
        found["X"] = found["X"][:1] + near * found["X"]
        found["Z"] = found["Z"][:, :1] + near * found["Z"]


_FIELDS = {
    "X": "array", "Z": "array", "X_test": "array", "variance": "array", "lengthscales": "array", "noise": "array",
    "jitter": "array", "smoothness": "any", "y": "labels", "y_test": "any", "n_classes": "any", "likelihood": "any",
    "kernel": "any", "shared": "any", "prior_model": "any", "epsilon": "any", "hyperprior": "any", "name": "any",
}  # fmt: skip


# -- Problem and solve ---------------------------------------------------------------------------------------------


def _problem_door() -> Door:
    def base(rng: np.random.Generator) -> Arguments:
        found = _data(rng)
        if rng.random() < 0.2:
            found["hyperprior"] = {"variance": ("half-student-t", 4.0, 100.0)}
        return found

    return Door("Problem", 3.0, base, lambda given: Problem(**given), _FIELDS)


_LIKELIHOOD_OF = {
    "logit": ("x-gpc", "x-gpc-svi", "svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor", "gibbs-logit",
              "ensemble-logit"),
    "probit": ("svgpc", "epgpc"),
    "softmax": ("laplace", "laplace-tkp", "mh-softmax", "laplace-sparse"),
    "multinomial-probit": ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit", "gibbs-probit"),
}  # fmt: skip
_FULL = ("laplace", "laplace-tkp", "nested-ep", "nested-iep", "qep", "qiep", "vb-probit")
_ROBUST = ("vi-robust", "arpep", "rpapep")
_PLAIN = ("ep", "sep", "gfitc", "label-regression", "exact-probit", "gibbs-pairwise")


def _for_method(rng: np.random.Generator, method: str) -> Arguments:
    """A problem that the method takes."""
    likelihood = next((name for name, known in _LIKELIHOOD_OF.items() if method in known), "threshold")
    found = _data(rng, likelihood)
    if method in _FULL or (method == "exact-probit" and rng.random() < 0.5):
        found["Z"] = None
    if method in _ROBUST:
        found["epsilon"] = 0.01
    elif method in _PLAIN:
        found["epsilon"] = 0.0
    return found


def _solve_door(implementation: str, method: str) -> Door:
    row = options_of(implementation, method)

    def base(rng: np.random.Generator) -> Arguments:
        options = {name: _SMALL[name] for name in row if name in _SMALL}
        batches = "batch_size" in row and rng.random() < 0.3
        learns = "learn" in row and rng.random() < 0.2
        if "n_steps" in options and not (batches or learns or method.endswith("-svi") or implementation == "gibbs"):
            del options["n_steps"]
        if batches:
            options["batch_size"] = 2
        if learns:
            options["learn"] = ("variance",)
        return _for_method(rng, method) | {f"option {name}": value for name, value in options.items()}

    def call(given: Arguments) -> Any:
        fields = {name: value for name, value in given.items() if not name.startswith("option ")}
        options = {name[7:]: value for name, value in given.items() if name.startswith("option ")}
        return solve(implementation, method, Problem(**fields), **options)

    kinds = {f"option {name}": "any" for name in row} | {
        name: _FIELDS[name] for name in ("X", "variance", "noise", "Z")
    }
    weight = 0.02 if implementation == "quadrature" else 0.15 if method == "laplace-tkp" else 0.4
    return Door(f"solve {implementation} {method}", weight, base, call, kinds)


# -- functions of the packages, called directly --------------------------------------------------------------------


def _signed(y: Any) -> Any:
    return 2.0 * y - 1.0 if isinstance(y, np.ndarray) and y.dtype.kind in "iu" else y


def _positional(function: Callable[..., Any]) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in positional and p.default is p.empty]


def _keywords(function: Callable[..., Any]) -> list[str]:
    given = _positional(function)
    return [name for name in inspect.signature(function).parameters if name not in given]


def _fit_door(function: Callable[..., Any], solves: str, prior: type | None = None, **fixed: Any) -> Door:
    """A fit function: data of one latent function where `y_sign` or one class of parameters is asked for."""
    wanted, keywords = _positional(function), _keywords(function)
    binary = "y_sign" in wanted or ("n_classes" not in wanted and prior is None)

    def base(rng: np.random.Generator) -> Arguments:
        data = _for_method(rng, solves)
        if binary:
            for name in ("variance", "noise", "jitter", "lengthscales", "Z"):
                data[name] = None if data[name] is None else data[name][0]
        data["y_sign"] = _signed(data["y"])
        names = set(wanted) | ({"Z", "variance", "lengthscales", "noise", "jitter"} if prior else set())
        found = {name: data[name] for name in names if name in data}
        found |= {name: value for name, value in _SMALL.items() if name in keywords and name != "n_steps"}
        found |= {name: value for name, value in fixed.items() if name in keywords or name in wanted}
        found |= {"n_steps": 2} if _by_steps(function) else {}
        if "prior_model" in wanted:
            found["prior_model"] = "fitc" if data["Z"] is not None and rng.random() < 0.5 else "full"
        if "rng" in wanted:
            found["rng"] = np.random.default_rng(int(rng.integers(2**31)))
        if "seed" in keywords:
            found["seed"] = 0
        return found

    def call(given: Arguments) -> Any:
        given = dict(given)
        if prior is not None:
            fields = {name: given.pop(name) for name in prior._fields if name in given}  # type: ignore[attr-defined]
            given["prior" if "prior" in wanted else "hyper"] = prior(**fields)
            given.pop("Z", None)
        return function(**given)

    kinds = {name: _FIELDS.get(name, "labels" if name == "y_sign" else "any") for name in [*wanted, *keywords]}
    kinds |= dict.fromkeys(("variance", "lengthscales", "noise", "jitter"), "array") if prior else {}
    for name in ("prior", "hyper", "options"):
        kinds.pop(name, None)
    return Door(f"{function.__module__}.{function.__name__} as {solves}", 0.3, base, call, kinds)


def _by_steps(function: Callable[..., Any]) -> bool:
    return "n_steps" in inspect.signature(function).parameters and (
        "svi" in function.__module__ or "svi" in function.__name__ or "batches" in function.__name__
    )


def _fast_doors() -> Iterator[Door]:
    for method in methods()["fast"]:
        name = {"qep": "quadrature_ep", "qiep": "quadrature_ep", "laplace-tkp": "laplace"}.get(method, method)
        name = {"arpep": "apep", "rpapep": "apep", "bb-alpha": "apep"}.get(name, name)
        name = {"vi-jj-full": "vi_jj", "vi-jj-hybrid": "vi_jj"}.get(name, name).replace("-", "_")
        module = importlib.import_module(f"fast.methods.{name}")
        attribute = {"qep": "fit_qep", "qiep": "fit_qiep", "vi-jj-full": "fit_full", "vi-jj-hybrid": "fit_hybrid"}
        yield _fit_door(getattr(module, attribute.get(method, "fit")), method)
    for name, method in (("svgpc_svi", "svgpc"), ("epgpc_svi", "epgpc")):
        yield _fit_door(importlib.import_module(f"fast.methods.{name}").fit, method)
    svi = importlib.import_module("fast.methods.svi")
    yield _fit_door(svi.fit_stochastic, "svi")


def _reference_doors() -> Iterator[Door]:
    def of(place: str) -> Any:
        return importlib.import_module(f"reference.{place}")

    yield _fit_door(of("wenzel2019.fit").fit_xgpc, "x-gpc")
    yield _fit_door(of("wenzel2019.fit_svi").fit_xgpc_svi, "x-gpc-svi")
    yield _fit_door(of("wenzel2019.fit_svgpc").fit_svgpc, "svgpc")
    yield _fit_door(of("wenzel2019.fit_epgpc").fit_epgpc, "epgpc")
    yield _fit_door(of("villacampa2017.gfitc").gfitc_baseline, "gfitc", of("villacampa2017.fit").Prior)
    yield _fit_door(of("villacampa2017.vi_fit").vi_baseline, "vi-robust", of("villacampa2017.fit").Prior, epsilon=0.01)
    yield _fit_door(of("villacampa2017.training").fit_ep, "ep", of("villacampa2017.fit").Prior)
    yield _fit_door(
        of("villacampa2020.laplace_sparse").laplace_baseline, "laplace-sparse", of("villacampa2020.hyper").Prior
    )
    yield _fit_door(
        of("villacampa2020.fit_energies").fit_energy, "apep", of("villacampa2020.hyper").Prior, method="apep"
    )
    yield _fit_door(of("riihimaki2013.fit").fit_ep, "nested-ep", of("riihimaki2013.fit").Prior, method="nested-ep")
    yield _fit_door(of("riihimaki2013.laplace").fit_laplace, "laplace", of("riihimaki2013.fit").Prior)
    yield _fit_door(of("riihimaki2013.variational").fit_vb, "vb-probit", of("riihimaki2013.fit").Prior)
    yield _fit_door(of("izmailov2016.fit").fit_vi, "vi-jj", of("izmailov2016._prior").Prior, name="vi-jj")


def _gibbs_doors() -> Iterator[Door]:
    def of(place: str) -> Any:
        return importlib.import_module(f"gibbs.{place}")

    yield _fit_door(of("softmax").sample, "mh-softmax")
    yield _fit_door(of("threshold").sample, "gibbs-threshold")
    yield _fit_door(of("multinomial_probit").sample, "gibbs-probit")
    yield _fit_door(of("pairwise").sample, "gibbs-pairwise")
    yield _fit_door(of("sampling").sample_full, "gibbs-logit")
    yield _fit_door(of("sampling").sample_fitc, "gibbs-logit")
    yield _fit_door(of("exact_probit").sample_exact, "exact-probit")
    hyperprior = {"variance": ("half-student-t", 4.0, 100.0)}
    yield _fit_door(of("hyper").sample, "gibbs-logit", learn=("variance",), hyperprior=hyperprior)
    for place, arrays in (("annealed", ()), ("bridge", ("latent_values",)), ("sequential", ())):
        yield _evidence_door(of(f"evidence.{place}"), place, arrays)


def _evidence_door(module: Any, place: str, arrays: tuple[str, ...]) -> Door:
    function = getattr(module, "log_evidence_full" if place == "bridge" else "log_evidence")
    names, keywords = _positional(function), _keywords(function)

    def base(rng: np.random.Generator) -> Arguments:
        n, C = 3, 3
        root = rng.standard_normal((n, n))
        K = root @ root.T + np.eye(n)
        found = {
            "rng": np.random.default_rng(int(rng.integers(2**31))),
            "K_XX": K,
            "y_sign": np.array([1.0, -1.0, 1.0]),
            "cov": np.stack([K] * C),
            "y": np.array([0, 1, 2]),
            "epsilon": 0.0,
            "latent_values": rng.standard_normal((2, 40, n)),
        }
        return {name: found[name] for name in names} | {k: v for k, v in _SMALL.items() if k in keywords}

    kinds = {name: "any" if name in ("rng", "epsilon") else "array" for name in names} | dict.fromkeys(keywords, "any")
    return Door(f"gibbs.evidence.{place}.{function.__name__}", 0.2, base, lambda given: function(**given), kinds)


# -- estimators ----------------------------------------------------------------------------------------------------


def _estimator_doors() -> Iterator[Door]:
    estimators = importlib.import_module("fast.estimators")
    for name in estimators.__all__:
        yield _estimator_door(getattr(estimators, name), name)


def _estimator_door(cls: Any, name: str) -> Door:
    parameters = list(inspect.signature(cls.__init__).parameters)[1:]

    def base(rng: np.random.Generator) -> Arguments:
        n = int(rng.integers(4, 9))
        found: Arguments = {
            "X": rng.standard_normal((n, 2)),
            "y": np.arange(n) % 2,
            "X_test": rng.standard_normal((2, 2)),
        }
        found |= {"max_iter": 2, "learn": (), "random_state": 0}
        if "hyperparameters" in parameters:
            found["hyperparameters"] = "fixed"
        if "n_inducing" in parameters:
            found["n_inducing"] = 3
        if hasattr(cls, "partial_fit") and rng.random() < 0.3:
            found["classes"] = [0, 1]
        return found

    def call(given: Arguments) -> Any:
        given = dict(given)
        X, y, X_test = (given.pop(key) for key in ("X", "y", "X_test"))
        partial = "classes" in given
        classes = given.pop("classes", None)
        model = cls(**given)
        model = model.partial_fit(X, y, classes=classes) if partial else model.fit(X, y)
        return {"predict_proba": model.predict_proba(X_test)}

    kinds = dict.fromkeys(parameters, "any") | {"X": "array", "y": "labels", "X_test": "array"}
    kinds |= {"classes": "any"} if hasattr(cls, "partial_fit") else {}
    return Door(f"fast.estimators.{name}", 0.25, base, call, kinds)


# -- data ----------------------------------------------------------------------------------------------------------


def _plain_door(function: Callable[..., Any], weight: float, base: Arguments, **kinds: str) -> Door:
    """A function with arguments of its own; a key `rng` gets a generator."""

    def fresh(rng: np.random.Generator) -> Arguments:
        made = {"rng": np.random.default_rng(0)} if "rng" in kinds else {}
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in base.items()} | made

    return Door(f"{function.__module__}.{function.__name__}", weight, fresh, lambda given: function(**given), kinds)


def _data_doors() -> Iterator[Door]:
    synthetic = importlib.import_module("validation.datasets.synthetic")
    splits = importlib.import_module("validation.datasets.splits")
    generators = importlib.import_module("gibbs.core.generators")
    loading = importlib.import_module("validation.datasets.loading")
    any_of = dict.fromkeys(
        ("rng", "n", "d", "n_classes", "likelihood", "variance", "lengthscales", "noise", "epsilon", "X"), "any"
    )
    yield _plain_door(synthetic.make_gp_classification, 0.5, {"n": 5}, **any_of)
    yield _plain_door(
        synthetic.draw_latents, 0.3, {"X": np.arange(6.0).reshape(3, 2), "n_latents": 2}, rng="any", X="array",
        n_latents="any", variance="any", lengthscales="any", noise="any",
    )  # fmt: skip
    yield _plain_door(
        synthetic.draw_labels, 0.3, {"latent_values": np.ones((3, 2)), "likelihood": "softmax"}, rng="any",
        latent_values="array", likelihood="any", epsilon="any",
    )  # fmt: skip
    yield _plain_door(synthetic.make_waveform, 0.2, {"n": 5}, rng="any", n="any")
    yield _plain_door(synthetic.make_riihimaki2013_toy, 0.2, {}, rng="any", n_per_class="any")
    yield _plain_door(
        synthetic.make_villacampa2017_toy, 0.2, {"n": 5}, rng="any", n="any", variance="any", lengthscales="any"
    )
    yield _plain_door(splits.standardise, 0.2, {"X_train": np.arange(6.0).reshape(3, 2)}, X_train="array")
    iris = loading.load("iris", source="embedded")
    kinds = {"dataset": "any", "seed": "any", "test_size": "any", "stratify": "any", "keep_leaks": "any"}
    yield _plain_door(splits.train_test_split, 0.2, {"dataset": iris, "seed": 0}, **kinds)
    yield _plain_door(loading.load, 0.2, {"name": "iris", "source": "embedded"}, name="any", source="any")
    yield _plain_door(generators.spawn_generators, 0.2, {"seed": 0, "purposes": ("a", "b")}, seed="any", purposes="any")
    yield _plain_door(
        generators.spawn_streams, 0.2, {"seed": 0, "purposes": ("a", "b"), "n_chains": 2}, seed="any", purposes="any",
        n_chains="any",
    )  # fmt: skip
    yield _plain_door(arguments.json_mapping, 0.2, {"value": {"a": 1}, "name": "settings"}, value="any")


# -- files ---------------------------------------------------------------------------------------------------------


@cache
def _stored() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.npz"
        Problem(**_data(np.random.default_rng(3), "logit")).save(path)
        return path.read_bytes()


def _file_door() -> Door:
    """A problem's file with bytes changed, cut off or put in front."""

    def base(rng: np.random.Generator) -> Arguments:
        content = bytearray(_stored())
        how = rng.integers(4)
        if how == 0:
            content = content[: int(rng.integers(len(content)))]
        elif how == 1:
            for _ in range(int(rng.integers(1, 20))):
                content[int(rng.integers(len(content)))] = int(rng.integers(256))
        elif how == 2:
            content = bytearray(rng.bytes(int(rng.integers(200))))
        return {"content": bytes(content)}

    def call(given: Arguments) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p.npz"
            path.write_bytes(given["content"])
            return Problem.load(path)

    return Door("Problem.load of a file", 1.0, base, call, {})


def _path_door() -> Door:
    return Door(
        "Problem.load", 0.3, lambda rng: {"path": "none.npz"}, lambda given: Problem.load(**given), {"path": "any"}
    )


def _checkpoint_door() -> Door:
    """A run that is to continue from a file that is damaged, or of another run."""

    def base(rng: np.random.Generator) -> Arguments:
        found = _for_method(rng, "sep")
        keys = ("X", "y", "n_classes", "variance", "lengthscales", "noise", "jitter", "Z")
        return {key: found[key] for key in keys} | {"damage": int(rng.integers(4)), "at": float(rng.random())}

    def call(given: Arguments) -> Any:
        given = dict(given)
        damage, at = given.pop("damage"), given.pop("at")
        fit = importlib.import_module("fast.methods.sep").fit
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "c.npz"
            run = {"batch_size": 2, "n_steps": 2, "checkpoint": path, "checkpoint_every": 1}
            fit(**given, **run)
            content = bytearray(path.read_bytes())
            if damage == 0:
                content = content[: int(at * len(content))]
            elif damage == 1:
                content[int(at * len(content))] ^= 0xFF
            elif damage == 2:
                run["seed"] = 1
            path.write_bytes(bytes(content))
            return fit(**given, **run)

    return Door("fast.methods.sep.fit from a checkpoint", 0.3, base, call, {})


# -- the command line ----------------------------------------------------------------------------------------------

_TEXTS = (
    "nan", "1e400", "-1", "0", "[", "[0", "[[0]]", "null", "true", "", "text", "ü" * 3, "a" * 3000, '{"a": 1}', "1.5",
    "NaN", "Infinity", "[" * 2000, "0.5", "/", "no/such/file.npz", "toy", "x-gpc", "fast", "a=b=c", "--", "-o", "\x00",
)  # fmt: skip
_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("solve", "fast", "x-gpc", "toy", "-o", "{option}"),
    ("solve", "reference", "vi-jj", "toy", "-o", "max_iterations=3", "-o", "{option}"),
    ("solve", "fast", "ep", "toy-3-sparse-threshold", "-o", "max_iterations=3", "-o", "{option}"),
    ("solve", "gibbs", "gibbs-logit", "toy", *("-o", "evidence=none", "-o", "n_draws=8", "-o", "n_warmup=2"),
     "-o", "{option}"),
    ("solve", "{text}", "x-gpc", "toy"),
    ("solve", "fast", "{text}", "toy"),
    ("solve", "fast", "x-gpc", "{text}"),
    ("solve", "fast", "x-gpc", "toy", "-o", "max_iterations=3", "--output", "{text}"),
    ("solve", "fast", "x-gpc", "toy", "-o", "{text}"),
    ("compare", "{text}", "{text}"),
    ("problems", "{text}"),
    ("methods", "{text}"),
    ("methods", "{text}", "--markdown"),
    ("data", "{text}"),
    ("verify", "--check", "no {text}"),
    ("verify", "--method", "no {text}"),
    ("{text}",),
    ("{text}", "{text}"),
)  # fmt: skip
_OPTION_NAMES = (
    "tolerance", "max_iterations", "learn", "seed", "rate", "callback", "batch_size", "wibble", "checkpoint", "n_draws",
    "moments", "damping", "optimizer",
)  # fmt: skip


def _command_door() -> Door:
    def base(rng: np.random.Generator) -> Arguments:
        words = []
        for word in _COMMANDS[int(rng.integers(len(_COMMANDS)))]:
            text = str(rng.choice(np.array(_TEXTS, dtype=object)))
            name = str(rng.choice(_OPTION_NAMES))
            words.append(word.replace("{text}", text).replace("{option}", f"{name}={text}"))
        return {"words": words}

    return Door("triad", 1.0, base, lambda given: _command(given["words"]), {})


def _command(words: list[str]) -> None:
    cli = importlib.import_module("validation.cli")
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    code: Any = 0
    try:
        sys.argv = ["triad", *words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _elsewhere():
            cli.main()
    except SystemExit as error:
        code = error.code
    finally:
        sys.argv = before
    said = err.getvalue()
    if code not in (0, 1, 2, None) or "Traceback" in said or (code == 2 and not said.strip()):
        raise AssertionError(f"triad {words}: exit code {code}, {said[-300:]!r}")


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In an empty folder: what a command writes is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


@cache
def doors() -> tuple[Door, ...]:
    """All of them, in an order that does not depend on anything."""
    known = methods()
    found = [_problem_door(), _file_door(), _path_door(), _checkpoint_door(), _command_door()]
    found += [_solve_door(name, method) for name in known for method in known[name]]
    found += [*_fast_doors(), *_reference_doors(), *_gibbs_doors(), *_estimator_doors(), *_data_doors()]
    return tuple(found)
