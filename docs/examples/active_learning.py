"""Active learning by predictive entropy, and where the inducing points of each class went.

    python docs/examples/active_learning.py [picture.png]

Rows are asked for one after the other: the next label is that of the row whose class probabilities have the largest
entropy. Random rows serve as a comparison. With a file name, the inducing points are drawn into it.
"""

import sys

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fast.estimators import EPClassifier


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """-sum p log p of every row."""
    return -np.sum(probabilities * np.log(np.maximum(probabilities, np.finfo(float).tiny)), axis=1)


def classifier() -> EPClassifier:
    """One kernel for all classes."""
    return EPClassifier(n_inducing=9, shared=True, learn=("variance", "noise"), max_iter=10, random_state=0)


def curve(X, y, X_test, y_test, *, steps: int, by_entropy: bool, seed: int) -> list[float]:
    """Test log-loss after each label that was asked for, three rows of each class first."""
    rng = np.random.default_rng(seed)
    known = [int(row) for k in np.unique(y) for row in rng.choice(np.flatnonzero(y == k), 3, replace=False)]
    losses = []
    for _ in range(steps):
        model = classifier().fit(X[known], y[known])
        losses.append(float(-np.log(model.predict_proba(X_test)[np.arange(len(y_test)), y_test]).mean()))
        left = np.setdiff1d(np.arange(len(y)), known)
        score = entropy(model.predict_proba(X[left])) if by_entropy else rng.random(left.size)
        known.append(int(left[np.argmax(score)]))
    return losses


def plot(X, y, path: str) -> None:
    """Rows, and the inducing points of each class after learning."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = EPClassifier(n_inducing=8, learn=("variance", "noise", "Z"), random_state=0).fit(X, y)
    figure, axes = plt.subplots(figsize=(6, 5))
    for k, Z in enumerate(model.inducing_points_):
        axes.scatter(*X[y == model.classes_[k]].T, s=8, alpha=0.4, color=f"C{k}")
        axes.scatter(*Z.T, marker="x", color=f"C{k}", label=f"inducing points of class {model.classes_[k]}")
    axes.legend()
    figure.savefig(path, dpi=120)


def main(steps: int = 12, path: str | None = None) -> tuple[list[float], list[float]]:
    """Both curves; the picture if a path is given."""
    X, y = make_blobs(300, centers=[[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]], cluster_std=0.6, random_state=0)
    X = StandardScaler().fit_transform(X)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    asked, drawn = (
        curve(X_train, y_train, X_test, y_test, steps=steps, by_entropy=by_entropy, seed=0)
        for by_entropy in (True, False)
    )
    if path is not None:
        plot(X_train, y_train, path)
    return asked, drawn


if __name__ == "__main__":
    by_entropy, at_random = main(path=sys.argv[1] if len(sys.argv) > 1 else None)
    for number, (asked, drawn) in enumerate(zip(by_entropy, at_random, strict=True)):
        sys.stdout.write(f"{9 + number} labels: log-loss {asked:.3f} by entropy, {drawn:.3f} at random\n")
