data {
  int<lower=0> N;
  int<lower=1> num_students;
  int<lower=1> num_items;
  array[N] int<lower=1> student;
  array[N] int<lower=1> item;
  array[N] int<lower=0, upper=1> correct;
}
parameters {
  vector[num_students] theta;
  vector<lower=0>[num_items] a;
  vector[num_items] b;
  real mu_b;
  real<lower=0> sigma_b;
  real<lower=0> sigma_a;
}
model {
  sigma_b ~ cauchy(0, 2);
  mu_b ~ normal(0, 2);
  sigma_a ~ cauchy(0, 2);
  theta ~ std_normal();
  b ~ normal(mu_b, sigma_b);
  a ~ lognormal(0, sigma_a);
  correct ~ bernoulli_logit(a[item] .* (theta[student] - b[item]));
}
