#include "cudaApi.h"

#include <dlfcn.h>

namespace tw {
namespace {

thread_local int currentDevice = -1;

/**
 * Results after which the context answers nothing else: the kernel that caused them is gone, and so is all memory.
 * 214, 220, 226: hardware. 700, 702, 709, 710, 714–719, 721: a kernel or the context. 911: an external device.
 */
bool isContextDead(CuResult result) {
  return result == 214 || result == 220 || result == 226 || result == 700 || result == 702 || result == 709 ||
         result == 710 || (result >= 714 && result <= 719) || result == 721 || result == 911 || result == 999;
}

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

void nameCurrentDevice(int ordinal) { currentDevice = ordinal; }

void *CudaApi::find(const char *name, bool isRequired) {
  void *address = ::dlsym(handle_, name);
  if (address == nullptr && isRequired) missing_.emplace_back(name);
  return address;
}

void CudaApi::fail(CuResult result, const std::string &call, const std::string &more) const {
  const char *name = nullptr;
  const char *text = nullptr;
  // A driver older than the code does not know it: the number then stands alone.
  if (cuGetErrorName.raw(result, &name) != CU_SUCCESS) name = nullptr;
  if (cuGetErrorString.raw(result, &text) != CU_SUCCESS) text = nullptr;
  const std::string code = name == nullptr ? "CUDA_ERROR_" + std::to_string(result) : name;
  const std::string where = currentDevice < 0 ? "" : " (device " + std::to_string(currentDevice) + ")";
  std::string message = call + where + ": " + code;
  if (text != nullptr) message += std::string(": ") + text;
  if (!more.empty()) message += "\n" + more;
  throw CodedError(message, code, call, isContextDead(result));
}

std::shared_ptr<const CudaApi> CudaApi::load(const std::string &path) {
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char *reason = ::dlerror();
    tw::fail("the CUDA driver cannot be loaded: " + std::string(reason == nullptr ? path : reason));
  }
  const std::shared_ptr<CudaApi> api(new CudaApi(handle));
  // Answers before cuInit, and also where there is no device.
  if (api->cuDriverGetVersion && api->cuDriverGetVersion.raw(&api->driverVersion_) != CU_SUCCESS)
    api->driverVersion_ = 0;
  if (api->driverVersion_ > 0 && api->driverVersion_ < OLDEST_DRIVER) {
    tw::fail("the driver is too old: it is for CUDA " + versionText(api->driverVersion_) + ", this needs CUDA " +
             versionText(OLDEST_DRIVER) + " or newer (a driver from 525 on)");
  }
  if (!api->missing_.empty()) {
    std::string names;
    for (const std::string &name : api->missing_) names += (names.empty() ? "" : ", ") + name;
    tw::fail(path + " lacks " + names);
  }
  api->cuInit(0);
  return api;
}

}  // namespace tw
