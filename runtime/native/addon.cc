// The door of the addon. runtime/cpu/addon.ts is its typed side.
#include "abi.h"
#include "support.h"

namespace {

Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("Memory", tw::initMemory(env));
  exports.Set("Library", tw::initLibrary(env));
  exports.Set("Pool", tw::initPool(env));
  exports.Set("Program", tw::initProgram(env));
  exports.Set("cpuInfo", Napi::Function::New<tw::cpuInfo>(env, "cpuInfo"));
  exports.Set("pack", Napi::Function::New<tw::pack>(env, "pack"));
  exports.Set("peak", Napi::Function::New<tw::peak>(env, "peak"));
  exports.Set("abi", Napi::Number::New(env, TW_ABI));
  return exports;
}

}  // namespace

NODE_API_MODULE(tilewright, init)
