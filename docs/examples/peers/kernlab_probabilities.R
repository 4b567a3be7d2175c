# kernlab's gausspr: a class probability is the logistic function of the latent mean, whatever the variance; 0 and 0 below.
library(kernlab)
x <- matrix(c(-1, -0.5, 0.5, 1, 0, 0, 0, 0), ncol = 2)
for (variance in c(1, 10000)) {
  k <- function(a, b) variance * exp(-0.5 * sum((a - b)^2))
  class(k) <- "kernel"
  model <- gausspr(x, factor(c(0, 0, 1, 1)), kernel = k, scaled = FALSE, tol = 1e-10)
  new <- matrix(c(2.5, 3, 0, 0), ncol = 2)
  f <- -kernelMatrix(k, new, x[alphaindex(model)[[1]], ]) %*% alpha(model)[[1]]
  cat(format(predict(model, new, type = "probabilities")[, "1"] - 1 / (1 + exp(-f)), digits = 2), "\n")
}
