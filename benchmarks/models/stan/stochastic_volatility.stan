data {
  int<lower=1> T;
  vector[T] returns;
}
parameters {
  real<lower=0> sigma;
  vector[T] s;
  real<lower=0> nu;
}
model {
  sigma ~ exponential(50);
  nu ~ exponential(0.1);
  s[1] ~ normal(0, sigma);
  s[2:T] ~ normal(s[1:(T - 1)], sigma);
  returns ~ student_t(nu, 0, exp(s));
}
