"""`reference` behind the one door: one module per family of methods, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

# module -> the methods of its TABLE
ADAPTERS = {
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
        "laplace-sparse",
    ),
    "izmailov": ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"),
    "one_latent": ("x-gpc", "x-gpc-svi", "svgpc", "epgpc", "laplace-binary"),
    "riihimaki": ("nested-ep", "nested-iep", "qep", "qiep", "laplace", "laplace-tkp", "vb-probit"),
}

answer = dispatcher("reference", __name__, ADAPTERS)
