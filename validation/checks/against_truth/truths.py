"""Stored truths: each is of the question that its name means today, and a fresh run of its sampler agrees with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from validation.checks.against_truth.exactness import tested
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Skipped, check
from validation.checks.subjects import CERTIFICATES, LARGER, LIVE, SEED, SUBJECTS, as_probit, chain
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.storage import FileFormatError
from validation.truth import library, shelf, store
from validation.truth.make import ROUTES

# what a quick run leaves out: many data, and problems whose samplers and likelihoods are asked of other stored truths
SLOW = ("iris-3", "iris-3-threshold", "iris-3-softmax", "iris-probit", *LARGER, "wine", "digits", "breast-cancer",
        "toy-3-softmax", "toy-3-sparse-errors", "toy-4-steep", "toy-4-steep-threshold")  # fmt: skip

PAPERS = {"mh-softmax": "riihimaki2013"} | {entry.sampler: entry.paper for entry in (*SUBJECTS, *CERTIFICATES)}

QUANTITIES = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities")


def problem_of(name: str) -> str:
    """The name of the problem, without the ending that puts the probit in the logistic link's place."""
    return name.removesuffix("-probit")


def question_of(problem: Problem, method: str) -> Problem:
    """The question whose truth a method stores: with the probit in the logistic link's place, if it samples that."""
    return problem if problem.likelihood in ROUTES[method].likelihoods else as_probit(problem)


def fresh(context: Context, problem: Problem, method: str) -> Solution:
    """A short run that shares nothing with the stored one but the code: another seed, other lengths."""
    route = ROUTES[method]
    if method == "gibbs-logit":
        if problem.name in LIVE:  # the chains that all checks of the problem share
            return chain(context, method, problem)
        short = {"n_chains": 16, "n_draws": 150 if context.quick else 2000, "n_warmup": 80, "thin": 2}
        return context.solve("gibbs", method, problem, seed=SEED, evidence="none", **short)
    if route.kind == "independent":
        return context.solve("gibbs", method, problem, seed=SEED, n_draws=400 if context.quick else 10_000)
    lengths: dict[str, Any] = {"n_chains": 32, "n_draws": 60 if context.quick else 1000, "n_warmup": 50}
    if method == "mh-softmax":
        lengths |= {"evidence": "none", "n_draws": 150 if context.quick else 1000}
    return context.solve("gibbs", method, problem, seed=SEED, **lengths)


def _stored(context: Context, question: Problem) -> Iterable[Outcome]:
    try:
        truth = store.load(question.name)
    except FileNotFoundError as error:
        yield Skipped(f"{error}; `make truths NAME={question.name}` makes it")
        return
    label = f"stored {truth.card.route}"
    changed = not store.same_question(truth.solution.problem, question)
    yield Compared(
        observed=float(changed),
        limit=0.0,
        why="a truth of another question judges nothing: data, prior and likelihood are those of the recipe to 1e-9",
        left=label,
        right="recipe of the problem",
        unit="1 if a field differs",
    )
    if changed:
        return
    unsound = not truth.card.certified
    yield Compared(
        observed=float(unsound),
        limit=0.0,
        why=f"gate {truth.card.gate} ({truth.card.gate_reason}); second route {truth.card.second_route}: largest |z| "
        f"{truth.card.second_z if truth.card.second_z is not None else np.nan:.2f}",
        left=label,
        right="its card",
        unit="1 if the card does not vouch for it",
    )
    run = fresh(context, question, store.RECIPES[question.name].method)
    for quantity in QUANTITIES:
        yield tested(run, truth.solution, quantity)


# made truths of the library that a full run draws afresh for each route; another seed takes others
SAMPLE, SAMPLE_SEED = 3, 1


def sample(method: str) -> tuple[str, ...]:
    """Names of made truths of the library by that route whose data are at hand, drawn by the seed."""
    own = [
        name
        for name in shelf.made()
        if library.get(name).route == method and not library.get(name).learn and not library.get(name).withheld
    ]
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(own))
    return tuple(own[i] for i in order[:SAMPLE])


def _cards(method: str) -> Iterable[Outcome]:
    """All made truths of a route: of today's table, vouched for by their cards, in files that are the cards' own."""
    own = [name for name in shelf.made() if library.get(name).route == method]
    if not own:
        yield Skipped(f"library: found no made truth by {method}; `triad truth make '*'` makes them")
        return
    wrong = []
    for name in own:
        card = shelf.card_of(name)
        try:
            card.check_moments(shelf.folder() / f"{name}.npz")
            if not card.certified or dict(card.recipe) != library.get(name).recipe():
                wrong.append(name)
        except FileFormatError:
            wrong.append(name)
    yield Compared(
        observed=float(len(wrong)),
        limit=0.0,
        why=f"{len(own)} truths of the library: gate met, second route and both routes to log Z agree, moments are the "
        f"card's, recipe is the table's{'; not so: ' + ', '.join(wrong) if wrong else ''}",
        left="library",
        right="its cards",
        unit="truths that nothing vouches for",
    )


def _library(context: Context, method: str) -> Iterable[Outcome]:
    yield from _cards(method)
    for name in sample(method):
        question, truth = library.question(name), shelf.load(name)
        run = fresh(context, question, method)
        for quantity in QUANTITIES:
            yield tested(run, truth.solution, quantity)


def _register_library(method: str) -> None:
    @check(
        f"exactness/{method}/library",
        paper=PAPERS[method],
        question="Cards describe the library's truths, and fresh runs agree with some drawn at random.",
        problems=(),
        full=(NO_PROBLEM,),
    )
    def exactness_library(context: Context, problem: Problem) -> Iterable[Outcome]:
        return _library(context, method)


def _register(method: str) -> None:
    own = [name for name, recipe in store.RECIPES.items() if recipe.method == method]

    @check(
        f"exactness/{method}/stored",
        paper=PAPERS[method],
        question="A fresh run agrees with the stored truth.",
        problems=tuple(problem_of(name) for name in own if name not in SLOW),
        full=tuple(problem_of(name) for name in own if name in SLOW),
    )
    def stored(context: Context, problem: Problem) -> Iterable[Outcome]:
        return _stored(context, question_of(problem, method))


for _method in dict.fromkeys(recipe.method for recipe in store.RECIPES.values()):
    _register(_method)
for _method in ("exact-probit", "gibbs-logit", "gibbs-threshold", "mh-softmax"):
    _register_library(_method)
