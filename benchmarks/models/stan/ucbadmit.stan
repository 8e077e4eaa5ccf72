data {
  int<lower=0> N;
  array[N] int<lower=1> dept;
  vector[N] male;
  array[N] int<lower=0> applications;
  array[N] int<lower=0> admit;
}
parameters {
  vector[2] v_mu;
  vector<lower=0>[2] sigma;
  cholesky_factor_corr[2] L_Rho;
  matrix[6, 2] z;
}
transformed parameters {
  matrix[6, 2] v = z * diag_pre_multiply(sigma, L_Rho)';
}
model {
  v_mu[1] ~ normal(0, 4);
  v_mu[2] ~ normal(0, 1);
  sigma ~ normal(0, 1);
  L_Rho ~ lkj_corr_cholesky(2);
  to_vector(z) ~ std_normal();
  admit ~ binomial_logit(applications, v_mu[1] + v[dept, 1] + (v_mu[2] + v[dept, 2]) .* male);
}
