"""Bugs of single steps: which are kept, what is carried over, what is looked at in each; of turns that few take."""

from __future__ import annotations

_ENDS = ()


_TURNS = ()


FAULTS = (*_ENDS, *_TURNS)
