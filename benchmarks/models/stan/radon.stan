data {
  int<lower=0> N;
  int<lower=1> num_counties;
  array[N] int<lower=1, upper=num_counties> county;
  vector[N] floor_measure;
  vector[N] log_radon;
}
parameters {
  real mu_a;
  real<lower=0> sigma_a;
  real mu_b;
  real<lower=0> sigma_b;
  vector[num_counties] a;
  vector[num_counties] b;
  real<lower=0> eps;
}
model {
  mu_a ~ normal(0, 1);
  sigma_a ~ cauchy(0, 1);
  mu_b ~ normal(0, 1);
  sigma_b ~ cauchy(0, 1);
  a ~ normal(mu_a, sigma_a);
  b ~ normal(mu_b, sigma_b);
  eps ~ cauchy(0, 1);
  log_radon ~ normal(a[county] + b[county] .* floor_measure, eps);
}
