data {
  int<lower=0> N;
  array[N] int<lower=0> at_bats;
  array[N] int<lower=0> hits;
}
parameters {
  real<lower=0, upper=1> m;
  real<lower=1> kappa;
  vector<lower=0, upper=1>[N] phi;
}
model {
  kappa ~ pareto(1, 1.5);
  phi ~ beta(m * kappa, (1 - m) * kappa);
  hits ~ binomial(at_bats, phi);
}
