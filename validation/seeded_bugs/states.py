"""Bugs of what `fast` knows between calls: rates of batches that are brought, fingerprints of runs."""

from __future__ import annotations

from typing import Any

from validation.seeded_bugs._seeded import seeded

_LOOKED_AT = 64  # rows


def _first_rows(original: Any) -> Any:
    def digests(self: Any) -> Any:
        from fast.core.checkpoint import digest

        return {"X": digest(self.X[:_LOOKED_AT]), "y": digest(self.labels(slice(0, _LOOKED_AT)))}

    return digests


def _first_block(original: Any) -> Any:
    def digests(self: Any) -> Any:
        from fast.core.checkpoint import digest

        X, y, _ = self._blocks[0]
        return {"X": digest(X[:_LOOKED_AT]), "y": digest(y[:_LOOKED_AT])}

    return digests


FAULTS = (
    seeded(
        "x-gpc-svi",
        "brought-rate-stays-one",
        "the rate of a batch that is brought is 1 for ever: it replaces all that q knew",
        "fast.one_latent.online:Online._rate",
        lambda original: lambda self, batch, share: 1.0,
        ("invariance/x-gpc-svi/pass_after_fit", "limit/x-gpc-svi/passes_from_nothing"),
    ),
    seeded(
        "svgpc",
        "brought-rate-stays-one",
        "the rate of a batch that is brought is 1 for ever: it replaces all that q knew",
        "fast.one_latent.online:Online._rate",
        lambda original: lambda self, batch, share: 1.0,
        ("invariance/svgpc/pass_after_fit", "limit/svgpc/passes_from_nothing"),
    ),
    seeded(
        "sep",
        "brought-batch-is-all-data",
        "a batch that is brought takes the place of all factors",
        "fast.sparse_classes.stream:factor_counts",
        lambda original: lambda class_counts, n, count: original(class_counts / class_counts.sum() * 10.0, 10, count),
        ("invariance/sep/pass_after_fit", "limit/sep/passes_from_nothing"),
    ),
    seeded(
        "x-gpc-svi",
        "fingerprint-of-first-rows",
        "the fingerprint of a run looks at the first rows of the data only",
        "fast.solve.minibatch:Shuffled.digests",
        _first_block,
        "invariance/x-gpc-svi/resume",
    ),
    *(
        seeded(
            method,
            "fingerprint-of-first-rows",
            "the fingerprint of a run looks at the first rows of the data only",
            "fast.sparse_classes.data:ClassData.digests",
            _first_rows,
            f"invariance/{method}/resume",
        )
        for method in ("sep", "vi-robust", "apep")
    ),
)
