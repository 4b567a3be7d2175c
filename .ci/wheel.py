"""What a wheel holds besides the packages: the page of the ledger, for `triad audit` where there are no tests to read.

A build hook of hatchling. The page is that of the docs, which `triad audit --check` holds against code and tests. An
editable installation has the repository itself and gets no copy.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LedgerHook(BuildHookInterface[Any]):
    """Adds docs/ledger.md as validation/ledger/stored.md."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files; version is "standard" or "editable"."""
        if version != "editable":
            build_data["force_include"]["docs/ledger.md"] = "validation/ledger/stored.md"
