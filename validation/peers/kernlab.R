# kernlab's gausspr as a program by file: Laplace's approximation with the logistic function, two classes, all rows.
#   Rscript kernlab.R problem.json answer.json
suppressPackageStartupMessages({
  library(jsonlite)
  library(kernlab)
})

paths <- commandArgs(trailingOnly = TRUE)
problem <- fromJSON(paths[1])
X <- problem$X
X_test <- problem$X_test
y <- problem$y
lengthscales <- problem$lengthscales[1, ]
if (ncol(X) == 1) {  # kernlab takes a single column for a vector
  X <- cbind(X, 0)
  if (!is.null(X_test)) X_test <- cbind(X_test, 0)
  lengthscales <- c(lengthscales, 1)
}

# variance * exp(-1/2 sum((x - z)^2 / lengthscales^2)), and the noise where both are the same row
cov <- function(x, z) {
  apart <- sum((x - z)^2 / lengthscales^2)
  problem$variance[1] * exp(-0.5 * apart) + problem$noise[1] * (apart == 0)
}
class(cov) <- "kernel"
model <- gausspr(X, factor(y), scaled = FALSE, kernel = cov, type = "classification", tol = 1e-10)

# weights stand class by class; the first class counts as positive there
order_of_weights <- alphaindex(model)[[1]]
weights <- numeric(nrow(X))
weights[order_of_weights] <- -alpha(model)[[1]]
answer <- list(
  versions = list(kernlab = as.character(packageVersion("kernlab"))),
  latent_mean = matrix(kernelMatrix(cov, X)@.Data %*% weights, ncol = 1)
)
if (!is.null(X_test)) {
  answer$test_latent_mean <- matrix(kernelMatrix(cov, X_test, X)@.Data %*% weights, ncol = 1)
  p <- predict(model, X_test, type = "probabilities")
  answer$probabilities <- unname(p[, order(as.numeric(colnames(p)))])
}
writeLines(toJSON(answer, digits = NA, auto_unbox = TRUE), paths[2])
