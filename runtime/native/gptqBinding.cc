// Quantisation for JavaScript: matrices of a layer's inputs, their factors, and rows as codes. Every argument is
// checked here; the work runs on a pool.
#include "gptq.h"

namespace tw {
namespace {

constexpr int64_t MAX_COLUMNS = 1 << 16;
constexpr int64_t MAX_ROWS = 1 << 24;

size_t columnsOf(const Napi::Object &job) {
  return static_cast<size_t>(integerArg(job.Get("k"), "k", 1, MAX_COLUMNS));
}

SquareMatrix squareOf(const Napi::Object &job, const char *name, size_t k) {
  SquareMatrix matrix;
  matrix.memory = memoryArg(job.Get(name), name);
  matrix.k = k;
  matrix.stride = hessianStride(k);
  if (!matrix.memory->isWritable()) fail(std::string(name) + " is a mapped file and cannot be written");
  matrix.memory->requireInside(0, product(product(matrix.stride, matrix.stride, name), sizeof(double), name), name);
  return matrix;
}

ColumnOrder orderOf(const Napi::Object &job, size_t k) {
  const auto [data, count] = typedArg<int32_t>(job.Get("order"), "order", napi_int32_array);
  if (count != k) fail("order is not one of " + std::to_string(k) + " columns");
  std::vector<bool> seen(k, false);
  for (size_t i = 0; i < k; i++) {
    if (data[i] < 0 || static_cast<size_t>(data[i]) >= k || seen[static_cast<size_t>(data[i])])
      fail("order is no permutation of columns");
    seen[static_cast<size_t>(data[i])] = true;
  }
  return {data, data + k};
}

/** Rows of k floats, copied: JavaScript may write to its own meanwhile. */
std::shared_ptr<std::vector<float>> rowsOf(const Napi::Object &job, const char *name, size_t k) {
  const auto [data, count] = typedArg<float>(job.Get(name), name, napi_float32_array);
  if (count == 0 || count % k != 0 || count / k > static_cast<size_t>(MAX_ROWS))
    fail(std::string(name) + " is no rows of " + std::to_string(k));
  return std::make_shared<std::vector<float>>(data, data + count);
}

CodeSettings settingsOf(const Napi::Object &job, size_t k) {
  CodeSettings settings;
  settings.bits = static_cast<int>(integerArg(job.Get("bits"), "bits", 2, 8));
  settings.group = static_cast<size_t>(integerArg(job.Get("group"), "group", 1, static_cast<int64_t>(k)));
  settings.isSymmetric = booleanArg(job.Get("isSymmetric"), "isSymmetric");
  // A block of columns that are corrected together begins no group within.
  if (k % settings.group != 0 || (settings.group != k && 128 % settings.group != 0))
    fail("groups of " + std::to_string(settings.group) + " do not divide " + std::to_string(k) + " columns");
  return settings;
}

template <typename Array, typename T>
Array arrayFrom(Napi::Env env, const std::vector<T> &values) {
  auto array = Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

const auto NOTHING = [](Napi::Env env) { return env.Undefined(); };

}  // namespace

Napi::Value addHessian(const Napi::CallbackInfo &info) {
  const auto pool = poolArg(info[0], "pool");
  const Napi::Object job = objectArg(info[1], "job");
  const size_t k = columnsOf(job);
  const SquareMatrix hessian = squareOf(job, "hessian", k);
  const auto inputs = rowsOf(job, "inputs", k);
  return PromiseWorker::start(
      info.Env(), [=] { addToHessian(*pool, hessian, inputs->data(), inputs->size() / k); }, NOTHING,
      Pool::lease(pool));
}

Napi::Value factorHessian(const Napi::CallbackInfo &info) {
  const auto pool = poolArg(info[0], "pool");
  const Napi::Object job = objectArg(info[1], "job");
  const size_t k = columnsOf(job);
  const SquareMatrix hessian = squareOf(job, "hessian", k), factor = squareOf(job, "factor", k);
  const ColumnOrder order = orderOf(job, k);
  const double damping = numberArg(job.Get("damping"), "damping");
  if (!(damping >= 0 && damping <= 1e6)) fail("damping must be from 0 to 1e6");
  return PromiseWorker::start(
      info.Env(), [=] { factorHessian(*pool, hessian, order, damping, factor); }, NOTHING, Pool::lease(pool));
}

Napi::Value invertFactor(const Napi::CallbackInfo &info) {
  const auto pool = poolArg(info[0], "pool");
  const Napi::Object job = objectArg(info[1], "job");
  const SquareMatrix factor = squareOf(job, "factor", columnsOf(job));
  return PromiseWorker::start(info.Env(), [=] { invertFactor(*pool, factor); }, NOTHING, Pool::lease(pool));
}

Napi::Value weightedNorm(const Napi::CallbackInfo &info) {
  const auto pool = poolArg(info[0], "pool");
  const Napi::Object job = objectArg(info[1], "job");
  const size_t k = columnsOf(job);
  const SquareMatrix factor = squareOf(job, "factor", k);
  const ColumnOrder order = orderOf(job, k);
  const auto values = rowsOf(job, "values", k);
  auto norm = std::make_shared<double>(0);
  return PromiseWorker::start(
      info.Env(), [=] { *norm = weightedNorm(*pool, factor, order, values->data(), values->size() / k); },
      [=](Napi::Env env) -> Napi::Value { return Napi::Number::New(env, *norm); }, Pool::lease(pool));
}

Napi::Value codeRows(const Napi::CallbackInfo &info) {
  const auto pool = poolArg(info[0], "pool");
  const Napi::Object job = objectArg(info[1], "job");
  const size_t k = columnsOf(job);
  const CodeSettings settings = settingsOf(job, k);
  const ColumnOrder order = orderOf(job, k);
  const auto weights = rowsOf(job, "weights", k);
  const bool isRounded = job.Get("inverse").IsUndefined();
  const SquareMatrix inverse = isRounded ? SquareMatrix{} : squareOf(job, "inverse", k);
  auto coded = std::make_shared<CodedRows>();
  return PromiseWorker::start(
      info.Env(),
      [=] {
        *coded = codeRows(*pool, weights->data(), weights->size() / k, order, settings, isRounded ? nullptr : &inverse);
      },
      [=](Napi::Env env) -> Napi::Value {
        auto result = Napi::Object::New(env);
        result.Set("codes", arrayFrom<Napi::Uint8Array>(env, coded->codes));
        result.Set("scales", arrayFrom<Napi::Uint16Array>(env, coded->scales));
        result.Set("zeros", arrayFrom<Napi::Uint8Array>(env, coded->zeros));
        result.Set("loss", Napi::Number::New(env, coded->loss));
        return result;
      },
      Pool::lease(pool));
}

}  // namespace tw
