functions {
  real induced_dirichlet_lpdf(vector c, vector alpha, real phi) {
    int K = num_elements(c) + 1;
    vector[K - 1] sigma = inv_logit(phi - c);
    vector[K] p;
    matrix[K, K] J = rep_matrix(0, K, K);
    p[1] = 1 - sigma[1];
    for (k in 2:(K - 1)) {
      p[k] = sigma[k - 1] - sigma[k];
    }
    p[K] = sigma[K - 1];
    for (k in 1:K) {
      J[k, 1] = 1;
    }
    for (k in 2:K) {
      real rho = sigma[k - 1] * (1 - sigma[k - 1]);
      J[k, k] = -rho;
      J[k - 1, k] = rho;
    }
    return dirichlet_lpdf(p | alpha) + log_determinant(J);
  }
}
data {
  int<lower=0> N;
  int<lower=1> D;
  int<lower=2> nclasses;
  matrix[N, D] X;
  array[N] int<lower=1, upper=nclasses> Y;
}
parameters {
  vector[D] b;
  ordered[nclasses - 1] cutpoints;
}
model {
  b ~ normal(0, 2);
  cutpoints ~ induced_dirichlet(rep_vector(1, nclasses), 0);
  Y ~ ordered_logistic(X * b, cutpoints);
}
