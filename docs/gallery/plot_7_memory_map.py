"""
Mini-batches from a memory map
==============================

Three hundred thousand rows in a file on disk. ``XGPClassifier`` reads them in shuffled blocks through ``numpy.memmap``
and takes natural-gradient steps on 200 rows each; the cost of a step does not depend on how many rows there are.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

import triad

ROWS, BATCH, STEPS = 300_000, 200, 100
rng = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
X = np.lib.format.open_memmap(Path(folder.name) / "X.npy", mode="w+", dtype=np.float64, shape=(ROWS, 2))
X[:] = rng.uniform(-3.0, 3.0, (ROWS, 2))
chance = 1.0 / (1.0 + np.exp(-4.0 * np.sin(X[:, 0]) * np.cos(X[:, 1])))
y = (rng.uniform(size=ROWS) < chance).astype(int)
X_test = rng.uniform(-3.0, 3.0, (1000, 2))
chance_test = 1.0 / (1.0 + np.exp(-4.0 * np.sin(X_test[:, 0]) * np.cos(X_test[:, 1])))
y_test = (rng.uniform(size=1000) < chance_test).astype(int)

losses = []
model = triad.XGPClassifier(
    n_inducing=40, inducing_points=X_test[:40], training="minibatch", batch_size=BATCH, max_iter=STEPS, random_state=0
)
model.fit(X, y, callback=lambda state: losses.append(log_loss(y_test, state.predict_proba(X_test)[:, 1])))
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.plot(BATCH * np.arange(1, len(losses) + 1), losses, label="XGPClassifier")
axis.axhline(log_loss(y_test, chance_test), color="black", linestyle="--", label="true chances")
axis.set(xlabel=f"rows looked at, of {ROWS}", ylabel="log-loss on other rows")
axis.legend()
