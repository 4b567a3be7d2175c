"""
Alpha from 0 to 1
=================

Power EP (``pep``) and its tied form (``apep``) lead from variational inference at alpha = 0 to EP at 1. On the left the
evidence each reports beside the true log Z (chains, three classes, one label in ten drawn at random); on the right how
far class probabilities are off. That the line of ``apep`` crosses the truth is no virtue: it rises through it.
"""

import matplotlib.pyplot as plt
import numpy as np

import triad

name = "toy-3-sparse-errors"
problem, truth = triad.problems.get(name), triad.truths.load(name).solution
powers = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for method, colour in (("pep", "C0"), ("apep", "C1")):
    answers = [triad.solve("fast", method, problem, alpha=float(alpha)) for alpha in powers]
    left.plot(powers, [answer.log_evidence for answer in answers], "o-", color=colour, label=method)
    off = [np.abs(answer.probabilities - truth.probabilities).max() for answer in answers]
    right.plot(powers, off, "o-", color=colour, label=method)
left.axhline(truth.log_evidence, color="black", linestyle="--", label="log Z, FITC prior")
left.set(xlabel="alpha", ylabel="nat")
right.set(xlabel="alpha", ylabel="largest error of a class probability", ylim=(0.0, None))
left.legend()
right.legend()
