#include "cudaModule.h"

#include <algorithm>

#include "cudaImage.h"

namespace tw {
namespace {

constexpr size_t LOG_BYTES = 16384;
/** Dynamic shared memory that every launch may have without asking. */
constexpr size_t SHARED_WITHOUT_ASKING = 48 << 10;
/** Percent of a multiprocessor's memory that is shared memory: as much as can be. */
constexpr int ALL_SHARED = 100;

}  // namespace

CudaModule::CudaModule(std::shared_ptr<CudaDevice> device, std::vector<char> image) : device_(std::move(device)) {
  parameterCounts_ = parameterCounts(image.data(), image.size());
  image.push_back('\0');  // PTX is a string; a cubin knows its own length
  std::vector<char> log(LOG_BYTES, '\0');
  CuJitOption options[] = {CuJitOption::ErrorLogBuffer, CuJitOption::ErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  const CudaApi &api = device_->use();
  const CuResult result = api.cuModuleLoadDataEx.raw(&module_, image.data(), 2, options, values);
  if (result != CU_SUCCESS) api.fail(result, "cuModuleLoadDataEx", std::string(log.data()));
}

CudaModule::~CudaModule() { device_->useQuietly().cuModuleUnload.raw(module_); }

CudaFunction &CudaModule::function(const std::string &symbol) {
  const auto known = functions_.find(symbol);
  if (known != functions_.end()) return known->second;
  const CudaApi &api = device_->use();
  CudaFunction function;
  function.symbol = symbol;
  const CuResult result = api.cuModuleGetFunction.raw(&function.handle, module_, symbol.c_str());
  if (result == CU_NOT_FOUND) fail("The module has no kernel " + symbol);
  if (result != CU_SUCCESS) api.fail(result, "cuModuleGetFunction", symbol);
  // Code is else put on the device by its first launch, which would be measured slow.
  if (api.cuFuncLoad) api.cuFuncLoad(function.handle);
  // A multiprocessor divides its memory into cache and shared memory, and must be idle to divide it again. Kernels that
  // divide it alike can overlap, whether they use shared memory or not.
  api.cuFuncSetAttribute(function.handle, CuFunctionAttribute::PreferredSharedCarveout, ALL_SHARED);
  const auto attribute = [&](CuFunctionAttribute which) {
    int value = 0;
    api.cuFuncGetAttribute(&value, which, function.handle);
    return value;
  };
  function.info.registers = attribute(CuFunctionAttribute::Registers);
  function.info.localBytes = attribute(CuFunctionAttribute::LocalBytes);
  function.info.sharedBytes = attribute(CuFunctionAttribute::SharedBytes);
  function.info.constantBytes = attribute(CuFunctionAttribute::ConstantBytes);
  function.info.maxThreads = attribute(CuFunctionAttribute::MaxThreads);
  function.info.binaryVersion = attribute(CuFunctionAttribute::BinaryVersion);
  return functions_.emplace(symbol, std::move(function)).first->second;
}

void CudaModule::allowShared(CudaFunction &function, size_t bytes) {
  const size_t limit = device_->info().sharedBytesPerBlock;
  const auto fixed = static_cast<size_t>(function.info.sharedBytes);
  if (bytes > limit || bytes + fixed > limit) {
    fail(function.symbol + " needs " + std::to_string(bytes) + " + " + std::to_string(fixed) +
         " bytes of shared memory, a block of this device has at most " + std::to_string(limit));
  }
  if (bytes <= function.dynamicShared || bytes + fixed <= SHARED_WITHOUT_ASKING) return;
  device_->use().cuFuncSetAttribute(function.handle, CuFunctionAttribute::MaxDynamicShared, static_cast<int>(bytes));
  function.dynamicShared = bytes;
}

void CudaModule::allowLargeClusters(CudaFunction &function) {
  device_->use().cuFuncSetAttribute(function.handle, CuFunctionAttribute::LargeClusterAllowed, 1);
}

int CudaModule::blocksPerMultiprocessor(const std::string &symbol, int threads, size_t sharedBytes) {
  CudaFunction &kernel = function(symbol);
  if (threads > kernel.info.maxThreads) return 0;
  if (sharedBytes + static_cast<size_t>(kernel.info.sharedBytes) > device_->info().sharedBytesPerBlock) return 0;
  allowShared(kernel, sharedBytes);
  int blocks = 0;
  device_->use().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.handle, threads, sharedBytes);
  return blocks;
}

void CudaModule::requireParameters(const CudaFunction &function, const std::vector<size_t> &sizes) const {
  const CudaApi &api = device_->use();
  // The driver tells the end of a list only by refusing to go on, which tools that watch it take for an error. Where
  // the image does not tell it either, parameters past the binding's go unnoticed.
  const auto known = parameterCounts_.find(function.symbol);
  const size_t count = known == parameterCounts_.end() ? sizes.size() : known->second;
  const auto describe = [](size_t size) { return "of " + std::to_string(size) + " bytes"; };
  for (size_t i = 0; i < std::max(count, sizes.size()); i++) {
    const std::string wanted = i < sizes.size() ? describe(sizes[i]) : "absent";
    std::string found = i >= count ? "absent" : i < sizes.size() ? wanted : "there";
    if (i < count && api.cuFuncGetParamInfo) {
      size_t offset = 0;
      size_t size = 0;
      const CuResult result = api.cuFuncGetParamInfo.raw(function.handle, i, &offset, &size);
      found = result == CU_SUCCESS ? describe(size) : "absent";
    }
    if (found != wanted)
      fail(function.symbol + ": parameter " + std::to_string(i) + " is " + found + " in the kernel and " + wanted +
           " in the binding");
  }
}

}  // namespace tw
