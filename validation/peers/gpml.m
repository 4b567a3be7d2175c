% GPML as a program by file: Laplace's approximation and expectation propagation, two classes, all rows.
%   octave gpml.m FOLDER METHOD problem.json answer.json      FOLDER: GPML's own, METHOD: laplace or ep
args = argv();
run(fullfile(args{1}, 'startup.m'));
problem = jsondecode(fileread(args{3}));
X = reshape(problem.X, numel(problem.y), []);
y = 2 * problem.y(:) - 1;

hyp.mean = [];
hyp.lik = [];
hyp.cov = [log(problem.lengthscales(:)); log(problem.variance(1)) / 2];
cov = {@covSEard};
if problem.noise(1) > 0
  cov = {@covSum, {@covSEard, @covNoise}};
  hyp.cov = [hyp.cov; log(problem.noise(1)) / 2];
end
if strcmp(args{2}, 'ep'), inf = @infEP; else, inf = @infLaplace; end
if strcmp(problem.likelihood, 'probit'), lik = @likErf; else, lik = @likLogistic; end

[mean_y, var_y, mean_f, var_f] = gp(hyp, inf, @meanZero, cov, lik, X, y, X, ones(size(y)));
answer.log_evidence = -gp(hyp, inf, @meanZero, cov, lik, X, y);
answer.latent_mean = mean_f;
answer.latent_cov = var_f;
if isfield(problem, 'X_test')
  Xs = reshape(problem.X_test, [], size(X, 2));
  [mean_y, var_y, mean_f, var_f, lp] = gp(hyp, inf, @meanZero, cov, lik, X, y, Xs, ones(rows(Xs), 1));
  answer.test_latent_mean = mean_f;
  answer.test_latent_cov = var_f;
  answer.probabilities = [1 - exp(lp), exp(lp)];
end
file = fopen(args{4}, 'w');
fputs(file, jsonencode(answer));
fclose(file);
