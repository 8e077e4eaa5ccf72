data {
  int<lower=1> N;
  array[N] real X;
  vector[N] Y;
}
parameters {
  real<lower=0> kernel_var;
  real<lower=0> kernel_noise;
  real<lower=0> kernel_length;
}
model {
  matrix[N, N] K = add_diag(gp_exp_quad_cov(X, sqrt(kernel_var), kernel_length), kernel_noise + 1e-6);
  kernel_var ~ lognormal(0, 10);
  kernel_noise ~ lognormal(0, 10);
  kernel_length ~ lognormal(0, 10);
  Y ~ multi_normal_cholesky(rep_vector(0, N), cholesky_decompose(K));
}
