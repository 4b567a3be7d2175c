"""What can go wrong with a data set: it is not to be had, or it is not what it should be."""

from __future__ import annotations


class DatasetNotFoundError(LookupError):
    """No data set of this name is within reach; says what was looked for, where, and what to do."""


class DatasetCorruptError(ValueError):
    """A data set, its file or the manifest is not what it should be; says what was found and expected."""
