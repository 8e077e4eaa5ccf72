data {
  int<lower=0> N;
  int<lower=1> D;
  matrix[N, D] X;
  array[N] int<lower=0> Y;
}
parameters {
  vector[D] b1;
  vector[D] b2;
  real a1;
  real a2;
}
model {
  vector[N] gate = X * b1 + a1;
  vector[N] log_rate = X * b2 + a2;
  b1 ~ std_normal();
  b2 ~ std_normal();
  a1 ~ std_normal();
  a2 ~ std_normal();
  for (n in 1:N) {
    if (Y[n] == 0) {
      target += log_sum_exp(bernoulli_logit_lpmf(1 | gate[n]),
                            bernoulli_logit_lpmf(0 | gate[n]) + poisson_log_lpmf(0 | log_rate[n]));
    } else {
      target += bernoulli_logit_lpmf(0 | gate[n]) + poisson_log_lpmf(Y[n] | log_rate[n]);
    }
  }
}
