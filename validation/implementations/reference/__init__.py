"""`reference` behind the one door: one module per family of methods, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

# module -> the methods of its TABLE
ADAPTERS = {
    "epgpc": ("epgpc",),
    "izmailov": ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"),
    "laplace_binary": ("laplace-binary",),
    "riihimaki": ("nested-ep", "nested-iep", "qep", "qiep", "laplace", "laplace-tkp", "vb-probit"),
    "svgpc": ("svgpc",),
    "villacampa": ("ep", "sep"),
    "villacampa2020_baselines": ("label-regression", "laplace-sparse"),
    "villacampa2020_energies": ("apep", "arpep", "rpapep", "bb-alpha"),
    "villacampa2020_pep": ("pep",),
    "villacampa_baselines": ("gfitc", "vi-robust"),
    "x_gpc": ("x-gpc",),
    "x_gpc_svi": ("x-gpc-svi",),
}

answer = dispatcher("reference", __name__, ADAPTERS)
