data {
  int<lower=0> N;
  vector[N] u;
  vector[N] v;
}
parameters {
  simplex[2] theta1;
  simplex[2] theta2;
  positive_ordered[2] phi;
  positive_ordered[2] lambda;
}
model {
  matrix[2, 2] theta;
  matrix[2, N] emission;
  theta[1] = theta1';
  theta[2] = theta2';
  theta1 ~ dirichlet([4, 2]');
  theta2 ~ dirichlet([2, 4]');
  phi[1] ~ normal(0, 1);
  phi[2] ~ normal(3, 1);
  lambda[1] ~ normal(0, 1);
  lambda[2] ~ normal(3, 1);
  for (n in 1:N) {
    for (k in 1:2) {
      emission[k, n] = normal_lpdf(u[n] | phi[k], 0.35) + normal_lpdf(v[n] | lambda[k], 0.5);
    }
  }
  target += hmm_marginal(emission, theta, [0.5, 0.5]');
}
