data {
  int<lower=0> N;
  int<lower=1> D;
  matrix[N, D] X;
  array[N] int<lower=0> y;
}
parameters {
  real alpha;
  vector[D] beta;
  real<lower=0> inv_phi;
}
model {
  alpha ~ normal(0, 5);
  beta ~ normal(0, 2.5);
  inv_phi ~ exponential(1);
  y ~ neg_binomial_2_log(alpha + X * beta, 1 / inv_phi);
}
