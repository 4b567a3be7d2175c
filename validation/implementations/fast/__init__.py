"""`fast` behind the one door: one module per family of methods, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

# module -> the methods of its TABLE
ADAPTERS = {
    "epgpc": ("epgpc",),
    "inducing": (
        "ep",
        "sep",
        "gfitc",
        "vi-robust",
        "pep",
        "apep",
        "arpep",
        "rpapep",
        "bb-alpha",
        "label-regression",
    ),
    "izmailov": ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"),
    "laplace_binary": ("laplace-binary",),
    "riihimaki": ("nested-ep", "nested-iep", "qep", "qiep", "laplace", "laplace-tkp", "vb-probit"),
    "sparse_laplace": ("laplace-sparse",),
    "svgpc": ("svgpc",),
    "x_gpc": ("x-gpc",),
    "x_gpc_svi": ("x-gpc-svi",),
}

answer = dispatcher("fast", __name__, ADAPTERS)
