data {
  int<lower=0> N;
  array[N] int<lower=0> n;
  array[N] int<lower=0> y;
}
parameters {
  real<lower=0> a;
  real<lower=0> b;
  vector<lower=0, upper=1>[N] theta;
}
model {
  target += -2.5 * log(a + b);
  theta ~ beta(a, b);
  y ~ binomial(n, theta);
}
