"""Programs of other libraries that answer a `Problem`, and how far from the truth they are.

`programs()` lists them. Each is a callable `(method, problem) -> Solution` with the attributes that `triad judge`
reads, and imports its library when it is asked, so that the list can be read where none of them is installed:

    triad judge validation.peers.gpflow_models:svgp_probit

Each library gets the problem's own hyper-parameters and learns nothing but its approximation. What it cannot pose (a
noise, a jitter, parameters for each class) it refuses by NotImplementedError.
"""

from __future__ import annotations

from validation.peers.program import Program

__all__ = ["Program", "programs"]


def programs() -> tuple[Program, ...]:
    """All programs, installed or not, by library."""
    from validation.peers import gpflow_models, gpml_models, gpy_models, gpytorch_models, kernlab_models, sklearn_models

    modules = (sklearn_models, gpflow_models, gpytorch_models, gpy_models, gpml_models, kernlab_models)
    return tuple(program for module in modules for program in module.PROGRAMS)
