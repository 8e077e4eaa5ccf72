data {
  int<lower=1> T;
  vector[T] y;
}
parameters {
  real alpha;
  vector[5] beta;
  real<lower=0> sigma;
}
model {
  alpha ~ normal(0, 10);
  beta ~ normal(0, 10);
  sigma ~ cauchy(0, 2.5);
  for (t in 6:T) {
    real mu = alpha;
    for (k in 1:5) {
      mu += beta[k] * y[t - k];
    }
    y[t] ~ normal(mu, sigma);
  }
}
