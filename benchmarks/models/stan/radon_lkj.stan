data {
  int<lower=0> N;
  int<lower=1> num_counties;
  array[N] int<lower=1, upper=num_counties> county;
  vector[N] floor_measure;
  vector[N] log_radon;
}
parameters {
  vector[2] mu;
  vector<lower=0>[2] sd;
  cholesky_factor_corr[2] chol_corr;
  matrix[num_counties, 2] z;
  real<lower=0> sigma;
}
transformed parameters {
  matrix[num_counties, 2] effects = rep_matrix(mu', num_counties) + z * diag_pre_multiply(sd, chol_corr)';
}
model {
  mu ~ normal(0, 5);
  sd ~ normal(0, 1);
  chol_corr ~ lkj_corr_cholesky(2);
  to_vector(z) ~ std_normal();
  sigma ~ exponential(1);
  log_radon ~ normal(effects[county, 1] + effects[county, 2] .* floor_measure, sigma);
}
