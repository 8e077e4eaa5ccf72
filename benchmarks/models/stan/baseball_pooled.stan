data {
  int<lower=0> N;
  array[N] int<lower=0> at_bats;
  array[N] int<lower=0> hits;
}
parameters {
  real<lower=0, upper=1> phi;
}
model {
  hits ~ binomial(at_bats, phi);
}
