"""
Three classes, and independent exact draws
==========================================

The multinomial probit with three classes: where each class has the largest probability, the deeper the colour the
surer. Nested EP is hard to tell from exact draws of the posterior; factorised variational Bayes is off by a tenth.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

import triad

X, y = make_blobs(36, centers=[[-1.2, -0.6], [1.2, -0.6], [0.0, 1.3]], cluster_std=0.75, random_state=2)
side = np.linspace(-3.2, 3.2, 22)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
problem = triad.Problem(
    name="blobs", X=X, y=y, n_classes=3, likelihood="multinomial-probit", variance=np.exp(2.5), lengthscales=1.2,
    shared=True, X_test=grid,
)  # fmt: skip
answers = {
    "exact-probit": triad.solve("gibbs", "exact-probit", problem, n_draws=400, target_error=0.1),
    "nested-ep": triad.solve("fast", "nested-ep", problem),
    "vb-probit": triad.solve("fast", "vb-probit", problem),
}
colours = np.array([[0.13, 0.40, 0.77], [0.81, 0.37, 0.05], [0.10, 0.54, 0.35]])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
truth = answers["exact-probit"].probabilities
for axis, (name, answer) in zip(axes, answers.items(), strict=True):
    image = (answer.probabilities @ colours).reshape(side.size, side.size, 3)
    axis.imshow(image, origin="lower", extent=(side[0], side[-1]) * 2, interpolation="bilinear")
    axis.scatter(*X.T, color=colours[y], edgecolors="white", s=30)
    off = np.abs(answer.probabilities - truth).max()
    axis.set(title=name if answer.implementation == "gibbs" else f"{name}, at most {off:.2f} off", xticks=[], yticks=[])
