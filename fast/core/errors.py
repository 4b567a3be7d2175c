"""What goes wrong in linear algebra, said by name."""

from __future__ import annotations

import numpy as np


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A matrix that must be positive definite is not; the text names it, its size and what to change."""
