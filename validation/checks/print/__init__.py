"""Checks of kind `print`: printed equations and statements of the papers, evaluated on what `fast` found."""
