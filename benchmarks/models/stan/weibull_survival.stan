data {
  int<lower=0> N;
  int<lower=1> D;
  matrix[N, D] x;
  vector<lower=0>[N] time;
  array[N] int<lower=0, upper=1> event;
}
parameters {
  real<lower=0> shape;
  real intercept;
  vector[D] beta;
}
model {
  vector[N] scale = exp(intercept + x * beta);
  shape ~ normal(0, 5);
  intercept ~ normal(0, 5);
  beta ~ normal(0, 2);
  for (n in 1:N) {
    if (event[n] == 1) {
      time[n] ~ weibull(shape, scale[n]);
    } else {
      target += weibull_lccdf(time[n] | shape, scale[n]);
    }
  }
}
