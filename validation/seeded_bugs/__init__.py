"""Seeded bugs: mistakes of the kind that people make, which some check must turn red on (`verify --self-test`)."""

from __future__ import annotations

from validation.seeded_bugs import (
    blockwise,
    chains,
    estimators,
    evidence,
    hard_cases,
    izmailov,
    judge,
    laplace_binary,
    learning,
    print_izmailov2016,
    print_protocols,
    print_riihimaki2013,
    print_villacampa2017,
    print_villacampa2020,
    print_wenzel2019,
    probit,
    riihimaki,
    shared,
    softmax,
    states,
    stochastic,
    threshold,
    truths,
    villacampa2017,
    villacampa2020,
    villacampa2020_baselines,
    ways,
    x_gpc,
)
from validation.selftest import SeededBug


def all_bugs() -> tuple[SeededBug, ...]:
    """Every bug that ships with the suite, by method."""
    return (
        x_gpc.FAULTS
        + stochastic.FAULTS
        + states.FAULTS
        + learning.FAULTS
        + estimators.FAULTS
        + izmailov.FAULTS
        + riihimaki.FAULTS
        + laplace_binary.FAULTS
        + villacampa2017.FAULTS
        + villacampa2020.FAULTS
        + villacampa2020_baselines.FAULTS
        + print_villacampa2020.FAULTS
        + print_villacampa2017.FAULTS
        + print_izmailov2016.FAULTS
        + print_protocols.FAULTS
        + probit.FAULTS
        + threshold.FAULTS
        + softmax.FAULTS
        + evidence.FAULTS
        + chains.FAULTS
        + truths.FAULTS
        + judge.FAULTS
        + hard_cases.FAULTS
        + print_riihimaki2013.FAULTS
        + print_wenzel2019.FAULTS
        + shared.FAULTS
        + ways.FAULTS
        + blockwise.FAULTS
    )
