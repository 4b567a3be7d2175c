"""`gibbs` behind the one door: one module per family of models, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

answer = dispatcher("gibbs", __name__, __path__)
