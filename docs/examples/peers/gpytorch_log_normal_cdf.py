"""GPyTorch's log_normal_cdf, which its Bernoulli likelihood integrates, jumps by 1.9e-3 at -1."""

import gpytorch
import torch
from scipy.special import log_ndtr

z = torch.tensor([-3.0, -2.0, -1.5, -1.0001, -1.0], dtype=torch.float64)
error = gpytorch.log_normal_cdf(z).numpy() - log_ndtr(z.numpy())
print(" ".join(f"{value:.1e}" for value in error))
