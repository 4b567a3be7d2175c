"""What a wheel holds besides the packages: states of the ledger, for `triad audit` where there are no tests to read.

A build hook of hatchling. The states are those that the text of code and tests in the folder of the build gives,
which needs no library; packages that are installed where the build runs are not read. An editable installation has the
repository itself and gets no copy.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LedgerHook(BuildHookInterface[Any]):
    """Adds validation/ledger/stored.json."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files; version is "standard" or "editable"."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from validation.ledger import audit, stored
        finally:
            sys.path.remove(self.root)
        ledger = audit.of_repository(Path(self.root))
        if ledger.problems:
            raise ValueError(f"ledger: found {'; '.join(ledger.problems)}, expected code and tests that can be read")
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / stored.FILE
        file.write_text(stored.text_of(ledger.rows), encoding="utf-8", newline="\n")
        build_data["force_include"][str(file)] = f"validation/ledger/{stored.FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it has written the wheel."""
        if version != "editable":
            self._folder.cleanup()
