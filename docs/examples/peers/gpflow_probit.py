"""GPflow's Bernoulli() is a probit with label errors: its probabilities stay 1e-3 off 0 and 1."""

import gpflow
import tensorflow as tf

f = tf.constant([[-8.0], [8.0]], dtype=tf.float64)
p = gpflow.likelihoods.Bernoulli().conditional_mean(tf.zeros_like(f), f)
print(" ".join(f"{value:.4f}" for value in p.numpy()[:, 0]))
