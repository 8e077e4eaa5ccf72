data {
  int<lower=0> N;
  vector[N] x;
}
parameters {
  simplex[3] w;
  ordered[3] mu;
  vector<lower=0>[3] sigma;
}
model {
  mu[1] ~ normal(0, 5);
  log(mu[2] - mu[1]) ~ normal(0, 5);
  target += -log(mu[2] - mu[1]);
  log(mu[3] - mu[2]) ~ normal(0, 5);
  target += -log(mu[3] - mu[2]);
  sigma ~ normal(0, 2);
  for (n in 1:N) {
    vector[3] terms = log(w);
    for (k in 1:3) {
      terms[k] += normal_lpdf(x[n] | mu[k], sigma[k]);
    }
    target += log_sum_exp(terms);
  }
}
