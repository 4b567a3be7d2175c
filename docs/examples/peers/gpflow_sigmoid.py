"""The logit likelihood of GPflow takes the logarithm of a rounded sigmoid: minus infinity from f = 37 on."""

import gpflow
import tensorflow as tf

f = tf.constant([[36.0], [37.0]], dtype=tf.float64)
likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
values = likelihood.log_prob(tf.zeros_like(f), f, tf.zeros_like(f))
print(" ".join(f"{value:.4g}" for value in values.numpy()))
