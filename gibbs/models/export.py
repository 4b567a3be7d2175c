"""Chains for ArviZ: an InferenceData (ArviZ below 1.0) or its successor, a DataTree, where ArviZ is installed."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np

from gibbs.core.errors import Array
from gibbs.models.multilatent import MultiLatentChains
from gibbs.models.sampling import LogitChains


def to_inference_data(chains: LogitChains | MultiLatentChains) -> Any:
    """The kept draws of `gibbs.models.sampling` and of the samplers with several latents, as ArviZ wants them.

    chains: what a sampler returned. Group posterior: f (chain, draw, data, latent), and where the model has them
    u (chain, draw, inducing_point, latent), omega (chain, draw, data) and h (chain, draw, data, latent); group
    sample_stats: log_joint (chain, draw). The coordinate draw counts the draws of a chain before the budget thinned
    them. Raises ImportError if ArviZ is not installed.
    """
    try:
        arviz = importlib.import_module("arviz")
    except ImportError as error:
        raise ImportError(
            "arviz: found none, expected the package for the export; install it, or gpc-triad with its extra 'arviz': "
            "pip install 'gpc-triad[arviz]'"
        ) from error
    posterior, dims = _posterior(chains)
    r, s, n, L = posterior["f"].shape
    coords: dict[str, Any] = {
        "chain": np.arange(r),
        "draw": chains.keep_every * np.arange(1, s + 1) - 1,
        "data": np.arange(n),
        "latent": np.arange(L),
    }
    if "u" in posterior:
        coords["inducing_point"] = np.arange(posterior["u"].shape[2])
    groups = {"posterior": posterior, "sample_stats": {"log_joint": chains.log_joint}}
    attrs = {
        "inference_library": "gpc-triad",
        "sampling_time": float(chains.seconds),
        "tuning_steps": int(chains.n_warmup),
        "gate": int(chains.gate),
    }
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # ArviZ below 1.0: groups are arguments
        return arviz.from_dict(**groups, coords=coords, dims=dims, attrs=attrs)
    return arviz.from_dict(groups, coords=coords, dims=dims, attrs={"/": attrs})


def _posterior(chains: LogitChains | MultiLatentChains) -> tuple[dict[str, Array], dict[str, list[str]]]:
    if isinstance(chains, LogitChains):
        arrays = {"f": chains.latent_draws[..., None], "omega": chains.omega_draws}
        dims = {"f": ["data", "latent"], "omega": ["data"]}
        if chains.inducing_draws is not None:
            arrays["u"] = chains.inducing_draws[..., None]
            dims["u"] = ["inducing_point", "latent"]
        return arrays, dims
    arrays = {"f": chains.latent_draws, "h": chains.auxiliary_draws}
    return arrays, {name: ["data", "latent"] for name in arrays}
