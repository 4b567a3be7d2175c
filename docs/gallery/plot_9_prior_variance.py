"""
Where approximations fail: large prior variance
===============================================

Three data on a line, so that the posterior is a quadrature away. As the prior variance grows, the posterior becomes
skewed, and most Gaussians pay: the variance of each method over the true one, averaged over the data.
Expectation propagation (``epgpc``, with the probit link) holds out best.
"""

import matplotlib.pyplot as plt
import numpy as np

import triad

logs = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
start = triad.problems.get("three-points")
figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
for likelihood, methods in (("logit", ("x-gpc", "svi", "vi-taylor")), ("probit", ("svgpc", "epgpc"))):
    problems = [start.replace(likelihood=likelihood, variance=np.exp([value]), X_test=None) for value in logs]
    exact = [triad.solve("quadrature", "exact", problem, digits=4).latent_var for problem in problems]
    for method in methods:
        ratios = [
            np.exp(np.log(triad.solve("fast", method, problem).latent_var / true).mean())
            for problem, true in zip(problems, exact, strict=True)
        ]
        axis.plot(logs, ratios, "o-" if likelihood == "logit" else "s--", label=f"{method}, {likelihood}")
axis.axhline(1.0, color="black", linewidth=1)
axis.set(xlabel="log variance of the prior", ylabel="posterior variance over the true one", ylim=(0.0, 1.15))
axis.legend()
