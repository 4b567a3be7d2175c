# A program in Julia: Laplace's approximation with the logistic function, two classes, all rows.
#   julia laplace.jl problem.json answer.json
using JSON, LinearAlgebra

problem = JSON.parsefile(ARGS[1])
matrix(rows) = reduce(vcat, (Float64.(row)' for row in rows))  # nested lists, row by row
X, X_test, y = matrix(problem["X"]), matrix(problem["X_test"]), Float64.(problem["y"])
lengthscales, variance = Float64.(problem["lengthscales"][1]), problem["variance"][1]
noise, jitter = problem["noise"][1], problem["jitter"][1]

kernel(A, B) = [variance * exp(-sum(abs2, (a - b) ./ lengthscales) / 2) for a in eachrow(A), b in eachrow(B)]
logistic(f) = 1 / (1 + exp(-f))

# Newton's method for the mode
K = kernel(X, X) + (noise + jitter) * I
newton(f) = (p = logistic.(f); W = p .* (1 .- p); K * ((I + W .* K) \ (W .* f + y - p)))
f = foldl((f, _) -> newton(f), 1:50; init = zeros(length(y)))

p = logistic.(f)
root = sqrt.(p .* (1 .- p))
B = cholesky(Symmetric(I + root .* K .* root'))
reduction(k) = sum(abs2, B.L \ (root .* k); dims = 1)  # what the data take off the prior's variance
K_test = kernel(X, X_test)

answer = Dict(
    "versions" => Dict("julia" => string(VERSION)),
    "log_evidence" => -dot(f, y - p) / 2 - sum(log1p.(exp.((1 .- 2y) .* f))) - logdet(B) / 2,
    "latent_mean" => f,
    "latent_cov" => variance + noise + jitter .- vec(reduction(K)),
    "test_latent_mean" => K_test' * (y - p),
    "test_latent_cov" => variance + noise .- vec(reduction(K_test)),
)  # vectors and numbers alone: JSON.jl writes a matrix column by column
open(io -> JSON.print(io, answer), ARGS[2], "w")
