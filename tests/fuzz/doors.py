"""The calls that bad and extreme values are put into: every public way in, each with arguments that are right."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_type_hints

import numpy as np
from support.by_name import sampler_by_name

from fuzz.commands import command_door
from fuzz.door import Arguments, Door
from fuzz.files import file_doors
from fuzz.values import HYPER
from validation.door import arguments
from validation.door.catalogue import METHODS
from validation.door.options import options_of
from validation.door.problem import BINARY_LIKELIHOODS, LIKELIHOODS, Problem
from validation.door.solve import methods, solve

# how little is enough: sizes of what is not changed by a draw
_SMALL: Arguments = {
    "max_iterations": 12, "n_steps": 2, "n_draws": 8, "n_warmup": 4, "n_chains": 2, "max_warmup": 512, "thin": 1,
    "max_proposals": 20_000, "n_walkers": 16, "learning_iterations": 2, "evidence": "none", "n_particles": 4,
    "n_islands": 4, "max_rounds": 1, "prediction_nodes": 6, "digits": 3.0, "target_error": 0.5,
}  # fmt: skip


def _data(rng: np.random.Generator, likelihood: str | None = None) -> Arguments:
    """A small problem's fields; one in three has extreme numbers."""
    likelihood = likelihood or str(rng.choice(LIKELIHOODS))
    C = 2 if likelihood in BINARY_LIKELIHOODS else int(rng.integers(2, 4))
    L = 1 if likelihood in BINARY_LIKELIHOODS else C
    n, d, m = int(rng.integers(C, 7)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    X = rng.standard_normal((n, d))
    y = rng.permutation(np.arange(n) % C)
    results: Arguments = {
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
        _extreme(rng, results)
    return results


def _extreme(rng: np.random.Generator, value: Arguments) -> None:
    what = str(
        rng.choice(["variance", "lengthscales", "noise", "jitter", "offset", "equal rows", "near rows", "scale"])
    )
    if what in value:
        value[what] = np.full_like(value[what], rng.choice(HYPER))
    elif what == "offset":
        move = rng.choice([1e3, 1e6, 1e12])
        value.update({key: value[key] + move for key in ("X", "Z", "X_test")})
    elif what == "scale":
        factor = rng.choice([1e-6, 1e3, 1e6])
        value.update({key: value[key] * factor for key in ("X", "Z", "X_test")})
    else:
        near = 0.0 if what == "equal rows" else 1e-9
        value["X"] = value["X"][:1] + near * value["X"]
        value["Z"] = value["Z"][:, :1] + near * value["Z"]


_FIELDS = {
    "X": "array", "Z": "array", "X_test": "array", "variance": "array", "lengthscales": "array", "noise": "array",
    "jitter": "array", "smoothness": "any", "y": "labels", "y_test": "any", "n_classes": "any", "likelihood": "any",
    "kernel": "any", "shared": "any", "prior_model": "any", "epsilon": "any", "hyperprior": "any", "name": "any",
}  # fmt: skip


# -- Problem and solve ---------------------------------------------------------------------------------------------


def _problem_door() -> Door:
    def base(rng: np.random.Generator) -> Arguments:
        result = _data(rng)
        if rng.random() < 0.2:
            result["hyperprior"] = {"variance": ("half-student-t", 4.0, 100.0)}
        return result

    return Door("Problem", 3.0, base, lambda given: Problem(**given), _FIELDS)


_LIKELIHOOD_OF = {
    "logit": ("x-gpc", "x-gpc-svi", "svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor", "laplace-binary",
              "gibbs-logit",
              "ensemble-logit"),
    "probit": ("svgpc", "epgpc"),
    "softmax": ("laplace", "laplace-tkp", "mh-softmax", "laplace-sparse"),
    "multinomial-probit": ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit", "gibbs-probit"),
}  # fmt: skip
_FULL = ("laplace", "laplace-binary", "laplace-tkp", "nested-ep", "nested-iep", "qep", "qiep", "vb-probit")
_ROBUST = ("vi-robust", "arpep", "rpapep")
_PLAIN = ("ep", "sep", "gfitc", "label-regression", "exact-probit", "gibbs-pairwise")


def _for_method(rng: np.random.Generator, method: str) -> Arguments:
    """A problem that the method takes."""
    likelihood = next((name for name, known in _LIKELIHOOD_OF.items() if method in known), "threshold")
    result = _data(rng, likelihood)
    if method in _FULL or (method == "exact-probit" and rng.random() < 0.5):
        result["Z"] = None
    if method in _ROBUST:
        result["epsilon"] = 0.01
    elif method in _PLAIN:
        result["epsilon"] = 0.0
    return result


def _solve_door(implementation: str, method: str) -> Door:
    row: dict[str, Any] = dict(options_of(implementation, method))

    def base(rng: np.random.Generator) -> Arguments:
        options = {name: _SMALL[name] for name in row if name in _SMALL}
        batches = "batch_size" in row and rng.random() < 0.3
        learns = "learn" in row and rng.random() < 0.3
        if "n_steps" in options and not (batches or learns or method.endswith("-svi") or implementation == "gibbs"):
            del options["n_steps"]
        if batches:
            options["batch_size"] = 2
        if learns:
            options["learn"] = ("variance",) if rng.random() < 0.5 else row["learn"].choices
            for name in ("optimizer", "scheme"):
                if name in row and rng.random() < 0.5:
                    options[name] = str(rng.choice(row[name].choices))
        return _for_method(rng, method) | {f"option {name}": value for name, value in options.items()}

    def call(given: Arguments) -> Any:
        fields = {name: value for name, value in given.items() if not name.startswith("option ")}
        options = {name[7:]: value for name, value in given.items() if name.startswith("option ")}
        if "learn" in options and "n_steps" in row:
            options.setdefault("n_steps", 2)  # a search to its end may take a minute, and is right to
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
    if function.__module__.startswith("gibbs.models"):  # of a checkpoint too
        binary = function.__module__ == "gibbs.models.sampling"
        given = {name: value for name, value in fixed.items() if name == "prior_model"}
        function = sampler_by_name(function, binary=binary, **given)
    else:
        function = _flat(function, solves)
    wanted, keywords = _positional(function), _keywords(function)
    binary = "y_sign" in wanted or ("n_classes" not in wanted and prior is None)

    def base(rng: np.random.Generator) -> Arguments:
        data = _for_method(rng, solves)
        if binary:
            for name in ("variance", "noise", "jitter", "lengthscales", "Z"):
                data[name] = None if data[name] is None else data[name][0]
        data["y_sign"] = _signed(data["y"])
        names = set(wanted) | ({"Z", "variance", "lengthscales", "noise", "jitter"} if prior else set())
        results = {name: data[name] for name in names if name in data}
        results |= {name: value for name, value in _SMALL.items() if name in keywords and name != "n_steps"}
        results |= {name: value for name, value in fixed.items() if name in keywords or name in wanted}
        results |= {"n_steps": 2} if _by_steps(function) else {}
        if "prior_model" in wanted:
            results["prior_model"] = "fitc" if data["Z"] is not None and rng.random() < 0.5 else "full"
        if "rng" in wanted:
            results["rng"] = np.random.default_rng(int(rng.integers(2**31)))
        if "seed" in keywords:
            results["seed"] = 0
        return results

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
    name = f"{function.__module__}.{function.__name__}"
    return Door(" ".join([name, *filter(None, [fixed.get("prior_model")]), f"as {solves}"]), 0.3, base, call, kinds)


def _by_steps(function: Callable[..., Any]) -> bool:
    return "n_steps" in inspect.signature(function).parameters and (
        "svi" in function.__module__ or "svi" in function.__name__ or "batches" in function.__name__
    )


def _fast_doors() -> Iterator[Door]:
    for function, method in _fast_fits():
        yield _fit_door(function, method)
        yield _values_door(function, method)


def _fast_fits() -> Iterator[tuple[Callable[..., Any], str]]:
    """Fit functions of `fast`, and the method that each solves."""
    for method in methods()["fast"]:
        name = {"qep": "quadrature_ep", "qiep": "quadrature_ep", "laplace-tkp": "laplace"}.get(method, method)
        name = {"arpep": "apep", "rpapep": "apep", "bb-alpha": "apep"}.get(name, name)
        name = {"vi-jj-full": "vi_jj", "vi-jj-hybrid": "vi_jj"}.get(name, name).replace("-", "_")
        module = importlib.import_module(f"fast.methods.{name}")
        attribute = {"qep": "fit_qep", "qiep": "fit_qiep", "vi-jj-full": "fit_full", "vi-jj-hybrid": "fit_hybrid"}
        yield getattr(module, attribute.get(method, "fit")), method
    for name, method in (("svgpc_svi", "svgpc"), ("epgpc_svi", "epgpc")):
        yield importlib.import_module(f"fast.methods.{name}").fit, method
    yield importlib.import_module("fast.methods.svi").fit_stochastic, "svi"


def _values_door(function: Callable[..., Any], solves: str) -> Door:
    """A fit function as its callers see it: something else where data, prior and options are expected."""
    by_name = _fit_door(function, solves)
    values = importlib.import_module(f"{function.__module__.split('.')[0]}.core.values")
    declared = get_type_hints(function)["options"]

    def fields(kind: type, given: Arguments) -> Any:
        return kind(**{name: value for name, value in given.items() if name in kind.__annotations__})

    def base(rng: np.random.Generator) -> Arguments:
        given = by_name.base(rng)
        return {"data": fields(values.Data, given), "prior": fields(values.Prior, given), "options": declared.of(given)}

    kinds = dict.fromkeys(("data", "prior", "options"), "any")
    return Door(f"{by_name.name} by values", 0.03, base, lambda given: function(**given), kinds)


def _flat(function: Callable[..., Any], method: str) -> Callable[..., Any]:
    """The same function of the fields of its values: data, prior and options."""
    if hasattr(function, "takes"):
        return _by_name(function)
    if "data" not in inspect.signature(function).parameters:
        return function
    values = importlib.import_module("fast.core.values")
    declared = get_type_hints(function)["options"]
    data = ["X", "y"]
    if not any(entry.method == method and {"logit", "probit"} & set(entry.likelihoods) for entry in METHODS):
        data.append("n_classes")
    prior = ["variance", "lengthscales", "noise", "jitter", "Z"]

    def flat(**given: Any) -> Any:
        parts = [{name: given.pop(name) for name in names if name in given} for names in (data, [*prior, "shared"])]
        return function(values.Data(**parts[0]), values.Prior(**parts[1]), declared(**given))

    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = [inspect.Parameter(name, keyword, default=option.default) for name, option in declared.declared().items()]
    wanted = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in (*data, *prior)]
    flat.__signature__ = inspect.Signature([*wanted, *fields])  # type: ignore[attr-defined]
    flat.__module__, flat.__name__ = function.__module__, function.__name__
    return flat


def _by_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """An entry point of `reference` with the options that it takes as parameters of its own."""

    def flat(**given: Any) -> Any:
        return function(**given)

    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "options"]
    row = options_of("reference", function.takes)  # type: ignore[attr-defined]
    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = [inspect.Parameter(name, keyword, default=option.default) for name, option in row.items()]
    flat.__signature__ = inspect.Signature([*parameters, *fields])  # type: ignore[attr-defined]
    flat.__module__, flat.__name__ = function.__module__, function.__name__
    return flat


def _reference_doors() -> Iterator[Door]:
    def of(place: str) -> Any:
        return importlib.import_module(f"reference.{place}")

    yield _fit_door(of("wenzel2019.fit").fit_xgpc, "x-gpc")
    yield _fit_door(of("wenzel2019.fit_svi").fit_xgpc_svi, "x-gpc-svi")
    yield _fit_door(of("wenzel2019.fit_svgpc").fit_svgpc, "svgpc")
    yield _fit_door(of("wenzel2019.fit_epgpc").fit_epgpc, "epgpc")
    yield _fit_door(of("villacampa2017.gfitc").gfitc_baseline, "gfitc", of("common.priors").Prior)
    yield _fit_door(of("villacampa2017.vi_fit").vi_baseline, "vi-robust", of("common.priors").Prior, epsilon=0.01)
    yield _fit_door(of("villacampa2017.fit").fit_ep, "ep", of("common.priors").Prior)
    yield _fit_door(
        of("villacampa2020.laplace_sparse").laplace_baseline, "laplace-sparse", of("villacampa2020.hyper").Prior
    )
    yield _fit_door(
        of("villacampa2020.fit_energies").fit_energy, "apep", of("villacampa2020.hyper").Prior, method="apep"
    )
    yield _fit_door(of("riihimaki2013.fit").fit_ep, "nested-ep", of("riihimaki2013.fit").Prior)
    yield _fit_door(of("riihimaki2013.laplace").fit_laplace, "laplace", of("riihimaki2013.fit").Prior)
    yield _fit_door(of("riihimaki2013.variational").fit_vb, "vb-probit", of("riihimaki2013.fit").Prior)
    yield _fit_door(of("izmailov2016.fit").fit_vi, "vi-jj", of("izmailov2016._prior").Prior, name="vi-jj")


def _gibbs_doors() -> Iterator[Door]:
    def of(place: str) -> Any:
        return importlib.import_module(f"gibbs.{place}")

    for place, method in (
        ("softmax", "mh-softmax"), ("threshold", "gibbs-threshold"), ("multinomial_probit", "gibbs-probit"),
        ("pairwise", "gibbs-pairwise"),
    ):  # fmt: skip
        yield _fit_door(of(f"models.{place}").sample, method)
        yield _values_door(of(f"models.{place}").sample, method)
    for model in ("full", "fitc"):
        yield _fit_door(of("models.sampling").sample, "gibbs-logit", prior_model=model)
    yield _fit_door(of("models.exact_probit").sample_exact, "exact-probit")
    hyperprior = {"variance": ("half-student-t", 4.0, 100.0)}
    yield _fit_door(of("models.hyper").sample, "gibbs-logit", learn=("variance",), hyperprior=hyperprior)
    for place, name in _EVIDENCE:
        yield _evidence_door(getattr(of(f"evidence.{place}"), name), place)
    yield from _gibbs_plain_doors(of)


_EVIDENCE = (
    ("annealed", "log_evidence"), ("annealed", "log_evidence_fitc"), ("bridge", "log_evidence_full"),
    ("bridge", "log_evidence_fitc"), ("chib", "log_evidence_full"), ("chib", "log_evidence_fitc"),
    ("fitted", "log_evidence"), ("pairwise", "log_evidence"), ("sequential", "log_evidence"),
    ("sequential", "log_evidence_margins"), ("softmax_annealed", "log_evidence"), ("softmax_bridge", "log_evidence"),
)  # fmt: skip


def _evidence_door(function: Callable[..., Any], place: str) -> Door:
    names, keywords = _positional(function), _keywords(function)

    def base(rng: np.random.Generator) -> Arguments:
        n, C, m = 3, 3, 2
        root = rng.standard_normal((n, n))
        K = root @ root.T + np.eye(n)
        K_XZ = 0.1 * rng.standard_normal((n, m))
        shape = {"softmax_bridge": (2, 130, n, C), "bridge": (2, 130, n)}.get(place, (2, 64, n))
        results = {
            "rng": np.random.default_rng(int(rng.integers(2**31))),
            "K_XX": K,
            "K_ZZ": np.eye(m),
            "K_XZ": K_XZ,
            "k_xx": np.diag(K).copy(),
            "y_sign": np.array([1.0, -1.0, 1.0]),
            "cov": np.stack([K] * C),
            "covariance": np.eye(4),
            "n_classes": C,
            "y": np.array([0, 1, 2]),
            "omega": rng.random((2, 64, n)),
            "loadings": rng.standard_normal((4, n)),
            "white": rng.standard_normal((2, 64, n)),
            "auxiliary": np.eye(n) + 0.1 * rng.random((2, 64, C, n)),
            "latent_values": rng.standard_normal(shape),
            "inducing_values": rng.standard_normal((2, 130, m)),
        }
        return {name: results[name] for name in names} | {k: v for k, v in _SMALL.items() if k in keywords}

    kinds = {name: "any" if name in ("rng", "n_classes") else "labels" if name == "y" else "array" for name in names}
    name = f"gibbs.evidence.{place}.{function.__name__}"
    return Door(name, 0.12, base, lambda given: function(**given), kinds | dict.fromkeys(keywords, "any"))


def _gibbs_plain_doors(of: Callable[[str], Any]) -> Iterator[Door]:
    draws = np.random.default_rng(0).standard_normal((4, 20, 2))
    gauss = {"latent_mean": np.array([[0.5, -1.0, 0.0]]), "latent_var": np.array([[1.0, 0.5, 2.0]])}
    both = {"latent_mean": "array", "latent_var": "array"}
    yield _plain_door(of("chains.diagnostics").convergence, 0.15, {"draws": draws}, draws="array", thin="any")
    yield _plain_door(of("chains.diagnostics").standard_error, 0.15, {"draws": draws}, draws="array")
    yield _plain_door(of("models.quadrature").logistic_normal_mean, 0.15, gauss, **both)
    gauss = gauss | {"latent_var": np.array([1.0, 0.5, 2.0])}
    yield _plain_door(of("models.softmax_probability").softmax_probability, 0.15, gauss, **both)
    yield _plain_door(of("models.multilatent").argmax_probability, 0.15, gauss, **both)
    rows = {"X1": np.arange(4.0).reshape(2, 2), "X2": np.ones((3, 2)), "variance": 1.0, "lengthscales": np.ones(2)}
    kinds = {"X1": "array", "X2": "array", "variance": "any", "lengthscales": "array"}
    yield _plain_door(of("core.kernels").squared_exponential, 0.15, rows, **kinds)
    yield _plain_door(of("core.kernels").matern, 0.15, rows | {"smoothness": 1.5}, **kinds, smoothness="any")


# -- estimators ----------------------------------------------------------------------------------------------------


def _estimator_doors() -> Iterator[Door]:
    estimators = importlib.import_module("fast.estimators")
    for name in estimators.__all__:
        yield _estimator_door(getattr(estimators, name), name)


def _estimator_door(cls: Any, name: str) -> Door:
    parameters = list(inspect.signature(cls.__init__).parameters)[1:]

    def base(rng: np.random.Generator) -> Arguments:
        n = int(rng.integers(4, 9))
        results: Arguments = {
            "X": rng.standard_normal((n, 2)),
            "y": np.arange(n) % 2,
            "X_test": rng.standard_normal((2, 2)),
        }
        results |= {"max_iter": 2, "learn": (), "random_state": 0}
        if "hyperparameters" in parameters:
            results["hyperparameters"] = "fixed"
        if "n_inducing" in parameters:
            results["n_inducing"] = 3
        if hasattr(cls, "partial_fit") and rng.random() < 0.3:
            results["classes"] = [0, 1]
            results |= {"later X": rng.standard_normal((3, 2)), "later y": np.arange(3) % 2, "total_samples": 20}
        return results

    def call(given: Arguments) -> Any:
        given = dict(given)
        X, y, X_test = (given.pop(key) for key in ("X", "y", "X_test"))
        partial = "classes" in given
        classes, later_X, later_y, total = (
            given.pop(name, None) for name in ("classes", "later X", "later y", "total_samples")
        )
        model = cls(**given)
        if not partial:
            return _predictions(model.fit(X, y), X_test)
        model = model.partial_fit(X, y, classes=classes)
        before = model.predict_proba(X_test)
        try:
            model.partial_fit(later_X, later_y, total_samples=total)
        except (ValueError, TypeError):
            # a batch that is refused leaves the model as it was
            assert np.array_equal(before, model.predict_proba(X_test)), "refused batch: the model has moved"
            raise
        return _predictions(model, X_test)

    kinds = dict.fromkeys(parameters, "any") | {"X": "array", "y": "labels", "X_test": "array"}
    if hasattr(cls, "partial_fit"):
        kinds |= {"classes": "any", "later X": "array", "later y": "labels", "total_samples": "any"}
    return Door(f"fast.estimators.{name}", 0.25, base, call, kinds)


def _predictions(model: Any, X_test: Any) -> Arguments:
    mean, var = model.latent_mean_and_variance(X_test)
    results = {"predict_proba": model.predict_proba(X_test), "latent_mean": mean, "latent_var": var}
    assert model.predict(X_test).shape[0] == mean.shape[0]
    return results


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


@cache
def doors() -> tuple[Door, ...]:
    """All of them, in an order that does not depend on anything."""
    known = methods()
    results = [_problem_door(), *file_doors(_fit_door), command_door()]
    results += [_solve_door(name, method) for name in known for method in known[name]]
    results += [*_fast_doors(), *_reference_doors(), *_gibbs_doors(), *_estimator_doors(), *_data_doors()]
    return tuple(results)
