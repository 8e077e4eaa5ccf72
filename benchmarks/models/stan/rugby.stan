data {
  int<lower=0> N;
  array[N] int<lower=1, upper=6> home;
  array[N] int<lower=1, upper=6> away;
  array[N] int<lower=0> home_points;
  array[N] int<lower=0> away_points;
}
parameters {
  real home_advantage;
  real intercept;
  real<lower=0> sd_att;
  real<lower=0> sd_def;
  vector[6] atts_star;
  vector[6] defs_star;
}
transformed parameters {
  vector[6] atts = atts_star - mean(atts_star);
  vector[6] defs = defs_star - mean(defs_star);
}
model {
  home_advantage ~ normal(0, 1);
  intercept ~ normal(3, 1);
  sd_att ~ normal(0, 2);
  sd_def ~ normal(0, 2);
  atts_star ~ normal(0, sd_att);
  defs_star ~ normal(0, sd_def);
  home_points ~ poisson_log(intercept + home_advantage + atts[home] + defs[away]);
  away_points ~ poisson_log(intercept + atts[away] + defs[home]);
}
