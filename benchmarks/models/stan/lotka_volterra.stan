functions {
  vector dz_dt(real t, vector z, vector theta) {
    return [(theta[1] - theta[2] * z[2]) * z[1], (-theta[3] + theta[4] * z[1]) * z[2]]';
  }
}
data {
  int<lower=1> N;
  array[N] vector[2] y;
}
parameters {
  vector<lower=0>[4] theta;
  vector<lower=0>[2] z_init;
  vector<lower=0>[2] sigma;
}
model {
  array[N - 1] real times;
  array[N - 1] vector[2] z;
  for (n in 1:(N - 1)) {
    times[n] = n;
  }
  theta[{1, 3}] ~ normal(1, 0.5);
  theta[{2, 4}] ~ normal(0.05, 0.05);
  sigma ~ lognormal(-1, 1);
  z_init ~ lognormal(log(10), 1);
  z = ode_rk45_tol(dz_dt, z_init, 0, times, 1e-6, 1e-5, 1000, theta);
  y[1] ~ lognormal(log(z_init), sigma);
  for (n in 2:N) {
    y[n] ~ lognormal(log(z[n - 1]), sigma);
  }
}
