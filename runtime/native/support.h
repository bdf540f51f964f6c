// Argument checking and promises for the addon. Nothing that comes from JavaScript is trusted: every number is checked
// to be an integer in range before it becomes an offset or a count.
#ifndef TILEWRIGHT_SUPPORT_H
#define TILEWRIGHT_SUPPORT_H
#include <napi.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tw {

[[noreturn]] inline void fail(const std::string &message) { throw std::runtime_error(message); }

[[noreturn]] inline void failErrno(const std::string &what) {
  const int code = errno;
  fail(what + ": " + std::strerror(code));
}

/** An error that a program can go by: `code`, `call` and `isContextDead` become properties of the JavaScript error. */
class CodedError : public std::runtime_error {
 public:
  CodedError(const std::string &message, std::string code, std::string call, bool isContextDead)
      : std::runtime_error(message), code_(std::move(code)), call_(std::move(call)), isContextDead_(isContextDead) {}
  const std::string &code() const { return code_; }
  Napi::Error toJavaScript(Napi::Env env) const {
    Napi::Error error = Napi::Error::New(env, what());
    error.Set("code", Napi::String::New(env, code_));
    error.Set("call", Napi::String::New(env, call_));
    error.Set("isContextDead", Napi::Boolean::New(env, isContextDead_));
    return error;
  }

 private:
  std::string code_;
  std::string call_;
  bool isContextDead_;
};

/** Runs the body of a binding, so that a CodedError keeps its properties on the way to JavaScript. */
template <typename Body>
auto coded(Napi::Env env, Body &&body) -> decltype(body()) {
  try {
    return body();
  } catch (const CodedError &error) {
    throw error.toJavaScript(env);
  }
}

/** An integer in [low, high], which must lie within ±2^53. */
inline int64_t integerArg(const Napi::Value &value, const std::string &what, int64_t low, int64_t high) {
  if (!value.IsNumber()) fail(what + " must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) || number != std::floor(number)) {
    fail(what + " must be an integer from " + std::to_string(low) + " to " + std::to_string(high) + ", not " +
         std::to_string(number));
  }
  return static_cast<int64_t>(number);
}

constexpr int64_t MAX_INTEGER = 9007199254740991;
/**
 * Larger micro-batches or matrices than this are a mistake, and products of it with a stride stay far from overflow.
 */
constexpr int64_t MAX_EXTENT = int64_t{1} << 31;

inline size_t sizeArg(const Napi::Value &value, const std::string &what) {
  return static_cast<size_t>(integerArg(value, what, 0, MAX_INTEGER));
}

inline double numberArg(const Napi::Value &value, const std::string &what) {
  if (!value.IsNumber()) fail(what + " must be a number");
  return value.As<Napi::Number>().DoubleValue();
}

inline std::string stringArg(const Napi::Value &value, const std::string &what) {
  if (!value.IsString()) fail(what + " must be a string");
  std::string text = value.As<Napi::String>().Utf8Value();
  if (text.find('\0') != std::string::npos) fail(what + " contains a zero byte");
  return text;
}

inline bool booleanArg(const Napi::Value &value, const std::string &what) {
  if (!value.IsBoolean()) fail(what + " must be true or false");
  return value.As<Napi::Boolean>().Value();
}

/** False where absent. */
inline bool optionalFlag(const Napi::Object &object, const char *name) {
  const Napi::Value value = object.Get(name);
  return !value.IsUndefined() && booleanArg(value, name);
}

inline Napi::Object objectArg(const Napi::Value &value, const std::string &what) {
  if (!value.IsObject()) fail(what + " must be an object");
  return value.As<Napi::Object>();
}

inline Napi::Array arrayArg(const Napi::Value &value, const std::string &what) {
  if (!value.IsArray()) fail(what + " must be an array");
  return value.As<Napi::Array>();
}

/** A typed array of exactly this element type. The data stay valid only during the call. */
template <typename T>
std::pair<const T *, size_t> typedArg(const Napi::Value &value, const std::string &what, napi_typedarray_type type) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type) {
    fail(what + " is a typed array of the wrong kind");
  }
  const auto array = value.As<Napi::TypedArrayOf<T>>();
  return {array.Data(), array.ElementLength()};
}

inline Napi::Float64Array toFloat64(Napi::Env env, const std::vector<double> &values) {
  auto array = Napi::Float64Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

/** True where [offset, offset + length) lies in [0, size), without overflow. */
inline bool isInside(size_t offset, size_t length, size_t size) { return offset <= size && length <= size - offset; }

/** a·b, or an error where it would not fit. */
inline size_t product(size_t a, size_t b, const char *what) {
  size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > static_cast<size_t>(MAX_INTEGER)) {
    fail(std::string(what) + " is too large");
  }
  return result;
}

inline size_t roundUp(size_t value, size_t step) { return (value + step - 1) / step * step; }

/** Runs `work` off the JavaScript thread, then `finish` on it; the promise gets its value or the first error. */
class PromiseWorker : public Napi::AsyncWorker {
 public:
  using Work = std::function<void()>;
  using Finish = std::function<Napi::Value(Napi::Env)>;

  static Napi::Promise start(Napi::Env env, Work work, Finish finish, std::shared_ptr<void> lease) {
    auto worker = std::unique_ptr<PromiseWorker>(
        new PromiseWorker(env, std::move(work), std::move(finish), std::move(lease)));
    Napi::Promise promise = worker->deferred_.Promise();
    worker->Queue();
    worker.release();  // deletes itself once it has settled
    return promise;
  }

 protected:
  void Execute() override {
    try {
      work_();
    } catch (const CodedError &error) {
      coded_ = std::make_unique<CodedError>(error);
      SetError(error.what());
    } catch (const std::exception &error) {
      SetError(error.what());
    } catch (...) {
      SetError("unknown native exception");
    }
  }

  void OnOK() override {
    const Napi::HandleScope scope(Env());
    try {
      const Napi::Value value = finish_(Env());
      settle();
      deferred_.Resolve(value);
    } catch (const Napi::Error &error) {
      settle();
      deferred_.Reject(error.Value());
    } catch (const std::exception &error) {
      settle();
      deferred_.Reject(Napi::Error::New(Env(), error.what()).Value());
    }
  }

  void OnError(const Napi::Error &error) override {
    const Napi::HandleScope scope(Env());
    settle();
    deferred_.Reject(coded_ ? coded_->toJavaScript(Env()).Value() : error.Value());
  }

 private:
  PromiseWorker(Napi::Env env, Work work, Finish finish, std::shared_ptr<void> lease)
      : AsyncWorker(env, "tilewright"),
        deferred_(Napi::Promise::Deferred::New(env)),
        work_(std::move(work)),
        finish_(std::move(finish)),
        lease_(std::move(lease)) {}

  /** Gives up everything held, so that a continuation of the promise may start the next job at once. */
  void settle() {
    work_ = nullptr;
    finish_ = nullptr;
    lease_.reset();
  }

  Napi::Promise::Deferred deferred_;
  Work work_;
  Finish finish_;
  std::shared_ptr<void> lease_;
  std::unique_ptr<CodedError> coded_;
};

/** Constructors and type tags of the classes of the addon, so that a stranger's object is never unwrapped. */
template <typename T>
T *unwrap(const Napi::Value &value, const std::string &what) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&T::TAG)) {
    fail(what + " must be a " + T::NAME + " of this addon");
  }
  return Napi::ObjectWrap<T>::Unwrap(value.As<Napi::Object>());
}

Napi::Function initMemory(Napi::Env env);
Napi::Function initLibrary(Napi::Env env);
Napi::Function initPool(Napi::Env env);
Napi::Function initProgram(Napi::Env env);
Napi::Object initCuda(Napi::Env env);
Napi::Value cpuInfo(const Napi::CallbackInfo &info);
Napi::Value pack(const Napi::CallbackInfo &info);
Napi::Value peak(const Napi::CallbackInfo &info);
Napi::Value addHessian(const Napi::CallbackInfo &info);
Napi::Value factorHessian(const Napi::CallbackInfo &info);
Napi::Value invertFactor(const Napi::CallbackInfo &info);
Napi::Value weightedNorm(const Napi::CallbackInfo &info);
Napi::Value codeRows(const Napi::CallbackInfo &info);

}  // namespace tw
#endif
