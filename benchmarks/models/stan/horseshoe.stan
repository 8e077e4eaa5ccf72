data {
  int<lower=0> N;
  int<lower=1> D;
  matrix[N, D] X;
  vector[N] Y;
}
parameters {
  vector<lower=0>[D] lambdas;
  vector<lower=0>[1] tau;
  vector[D] unscaled_betas;
  real<lower=0> prec_obs;
}
transformed parameters {
  vector[D] betas = tau[1] * lambdas .* unscaled_betas;
}
model {
  lambdas ~ cauchy(0, 1);
  tau ~ cauchy(0, 1);
  unscaled_betas ~ std_normal();
  prec_obs ~ gamma(3, 1);
  Y ~ normal(X * betas, inv_sqrt(prec_obs));
}
