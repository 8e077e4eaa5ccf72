// A plain C interface to one Stan model, for ctypes: the few things that isvi asks of a model, and no more.
// It is appended to the C++ code that stanc writes, which defines new_model(). Arrays belong to the caller;
// functions return 0 on success, and otherwise leave a message for isvi_stan_error().

#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include <stan/io/json/json_data.hpp>
#include <stan/math/rev/core.hpp>
#include <stan/model/log_prob_grad.hpp>
#include <stan/model/model_base.hpp>
#include <stan/services/util/create_rng.hpp>

namespace {

std::string last_error;
std::string last_text;

template <typename Function>
int guarded(Function&& function) {
  try {
    function();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception that is not a std::exception";
  }
  stan::math::recover_memory();
  return 1;
}

stan::model::model_base& as_model(void* model) { return *static_cast<stan::model::model_base*>(model); }

const char* joined(const std::vector<std::string>& names) {
  last_text.clear();
  for (const std::string& name : names) {
    if (!last_text.empty()) last_text += ',';
    last_text += name;
  }
  return last_text.c_str();
}

}  // namespace

extern "C" {

const char* isvi_stan_error() { return last_error.c_str(); }

void* isvi_stan_open(const char* json, unsigned int seed) {
  void* model = nullptr;
  guarded([&] {
    std::istringstream text(json);
    stan::json::json_data data(text);
    std::ostringstream messages;
    model = &new_model(data, seed, &messages);
  });
  return model;
}

void isvi_stan_close(void* model) { delete &as_model(model); }

int isvi_stan_dim(void* model) { return static_cast<int>(as_model(model).num_params_r()); }

const char* isvi_stan_unconstrained_names(void* model) {
  std::vector<std::string> names;
  as_model(model).unconstrained_param_names(names, false, false);
  return joined(names);
}

const char* isvi_stan_names(void* model, int transformed, int generated) {
  std::vector<std::string> names;
  as_model(model).constrained_param_names(names, transformed != 0, generated != 0);
  return joined(names);
}

// The log density with all constants and with the Jacobian of the constraints, and its gradient.
int isvi_stan_log_density_gradient(void* model, const double* z, double* value, double* gradient) {
  return guarded([&] {
    std::vector<double> position(z, z + as_model(model).num_params_r());
    std::vector<int> integers;
    std::vector<double> result;
    std::ostringstream messages;
    *value = stan::model::log_prob_grad<false, true>(as_model(model), position, integers, result, &messages);
    std::copy(result.begin(), result.end(), gradient);
  });
}

// Parameters, and if asked transformed parameters and generated quantities, from an unconstrained vector.
int isvi_stan_constrain(void* model, const double* z, int transformed, int generated, unsigned int seed,
                        double* values, int length) {
  return guarded([&] {
    stan::rng_t generator = stan::services::util::create_rng(seed, 1);
    Eigen::VectorXd position = Eigen::Map<const Eigen::VectorXd>(z, as_model(model).num_params_r());
    Eigen::VectorXd result;
    std::ostringstream messages;
    as_model(model).write_array(generator, position, result, transformed != 0, generated != 0, &messages);
    if (result.size() != length) throw std::runtime_error("write_array gave another number of values than expected");
    Eigen::Map<Eigen::VectorXd>(values, length) = result;
  });
}

// The unconstrained vector of parameters given as JSON.
int isvi_stan_unconstrain(void* model, const char* json, double* z) {
  return guarded([&] {
    std::istringstream text(json);
    stan::json::json_data values(text);
    Eigen::VectorXd result;
    std::ostringstream messages;
    as_model(model).transform_inits(values, result, &messages);
    Eigen::Map<Eigen::VectorXd>(z, result.size()) = result;
  });
}

}  // extern "C"
