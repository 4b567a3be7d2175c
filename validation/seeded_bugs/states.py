"""Bugs of what `fast` knows between calls: rates of batches that are brought."""

from __future__ import annotations

from validation.seeded_bugs._seeded import Seeds

seeded = Seeds(problems="*")

FAULTS = (
    seeded(
        "x-gpc",
        "brought-rate-stays-one",
        "the rate of a batch that is brought is 1 for ever: it replaces all that q knew",
        "fast.one_latent.online:Online._rate",
        lambda original: lambda self, batch, share: 1.0,
        "classifier/x-gpc/*",
    ),
    seeded(
        "svgpc",
        "brought-rate-stays-one",
        "the rate of a batch that is brought is 1 for ever: it replaces all that q knew",
        "fast.one_latent.online:Online._rate",
        lambda original: lambda self, batch, share: 1.0,
        "classifier/svgpc/*",
    ),
    seeded(
        "sep",
        "brought-batch-is-all-data",
        "a batch that is brought takes the place of all factors",
        "fast.sparse_classes.stream:factor_counts",
        lambda original: lambda class_counts, n, count: original(class_counts / class_counts.sum() * 10.0, 10, count),
        "classifier/sep/*",
    ),
)
