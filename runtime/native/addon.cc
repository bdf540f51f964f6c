// The exports of the addon. runtime/addon.ts and runtime/cuda/addon.ts are its typed side.
#include <cstdlib>  // defines __GLIBC__ where it is glibc
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "abi.h"
#include "support.h"

namespace {

/**
 * glibc gives every thread its own heap, and each keeps what it once needed: a tokenizer on many threads then holds
 * tens of megabytes that nobody uses. With two heaps its threads wait for each other, the longer the more there are.
 */
Napi::Value boundHeaps(const Napi::CallbackInfo &info) {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 2);
#endif
  return info.Env().Undefined();
}

/** Gives freed memory back to the system: what tokenising needed must not count while scoring. */
Napi::Value trim(const Napi::CallbackInfo &info) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("Memory", tw::initMemory(env));
  exports.Set("Library", tw::initLibrary(env));
  exports.Set("Pool", tw::initPool(env));
  exports.Set("Program", tw::initProgram(env));
  exports.Set("cpuInfo", Napi::Function::New<tw::cpuInfo>(env, "cpuInfo"));
  exports.Set("pack", Napi::Function::New<tw::pack>(env, "pack"));
  exports.Set("peak", Napi::Function::New<tw::peak>(env, "peak"));
  exports.Set("addHessian", Napi::Function::New<tw::addHessian>(env, "addHessian"));
  exports.Set("factorHessian", Napi::Function::New<tw::factorHessian>(env, "factorHessian"));
  exports.Set("invertFactor", Napi::Function::New<tw::invertFactor>(env, "invertFactor"));
  exports.Set("weightedNorm", Napi::Function::New<tw::weightedNorm>(env, "weightedNorm"));
  exports.Set("codeRows", Napi::Function::New<tw::codeRows>(env, "codeRows"));
  exports.Set("boundHeaps", Napi::Function::New<boundHeaps>(env, "boundHeaps"));
  exports.Set("trim", Napi::Function::New<trim>(env, "trim"));
  exports.Set("cuda", tw::initCuda(env));
  exports.Set("abi", Napi::Number::New(env, TW_ABI));
  return exports;
}

}  // namespace

NODE_API_MODULE(tilewright, init)
