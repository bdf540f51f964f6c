// The CUDA driver, found when the program runs: the few types and functions of it that are used here, declared by
// hand after the driver API's reference manual (CUDA 12), so that neither building nor loading the addon needs CUDA.
#ifndef TILEWRIGHT_CUDA_API_H
#define TILEWRIGHT_CUDA_API_H
#include "support.h"

namespace tw {

using CuResult = int;
using CuDeviceNumber = int;
using CuAddress = uint64_t;
using CuContext = struct CuContextOpaque *;
using CuStream = struct CuStreamOpaque *;
using CuEvent = struct CuEventOpaque *;
using CuModule = struct CuModuleOpaque *;
using CuFunction = struct CuFunctionOpaque *;

/** CUmemGenericAllocationHandle */
using CuAllocation = unsigned long long;

/** CUmemLocation: memory of a device. */
struct CuLocation {
  int type = 1;
  CuDeviceNumber device = 0;
};

/** CUmemAllocationProp: memory of a device, pinned, not for other processes. */
struct CuAllocationProperties {
  int type = 1;
  int handleTypes = 0;
  CuLocation location;
  void *windowsHandle = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(CuAllocationProperties) == 32, "CUmemAllocationProp has 32 bytes");

/** CUmemAccessDesc: reading and writing. */
struct CuAccess {
  CuLocation location;
  int flags = 3;
};
static_assert(sizeof(CuAccess) == 12, "CUmemAccessDesc has 12 bytes");

struct CuUuid {
  unsigned char bytes[16];
};

/** CUipcMemHandle */
struct CuIpcHandle {
  unsigned char bytes[64];
};

/** CUtensorMap: a descriptor of the copy engine. */
struct alignas(64) CuTensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(CuTensorMap) == 128, "CUtensorMap has 128 bytes");

constexpr CuResult CU_SUCCESS = 0;
constexpr CuResult CU_OUT_OF_MEMORY = 2;
constexpr CuResult CU_NOT_FOUND = 500;

/** CUdevice_attribute */
enum class CuDeviceAttribute : int {
  ClockRate = 13,
  Multiprocessors = 16,
  L2Bytes = 38,
  CapabilityMajor = 75,
  CapabilityMinor = 76,
  SharedPerMultiprocessor = 81,
  SharedPerBlockOptIn = 97,
  MapsMemory = 102,
};

/** CUfunction_attribute */
enum class CuFunctionAttribute : int {
  MaxThreads = 0,
  SharedBytes = 1,
  ConstantBytes = 2,
  LocalBytes = 3,
  Registers = 4,
  BinaryVersion = 6,
  MaxDynamicShared = 8,
  PreferredSharedCarveout = 9,
  LargeClusterAllowed = 14,
};

/** CUjit_option */
enum class CuJitOption : int { ErrorLogBuffer = 5, ErrorLogBytes = 6 };

/** CUlaunchAttributeID */
enum class CuLaunchAttributeId : int { ClusterDimension = 4, ProgrammaticStreamSerialization = 6 };

union CuLaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDimension;
  int isProgrammaticAllowed;
};

struct CuLaunchAttribute {
  CuLaunchAttributeId id;
  char pad[4];
  CuLaunchAttributeValue value;
};
static_assert(sizeof(CuLaunchAttribute) == 72, "CUlaunchAttribute has 72 bytes");

/** CUlaunchConfig */
struct CuLaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes;
  CuStream stream;
  CuLaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(CuLaunchConfig) == 56, "CUlaunchConfig has 56 bytes");

/** CUtensorMapDataType */
enum class CuTensorMapDataType : int { U8 = 0, F16 = 6, F32 = 7, BF16 = 9 };
/** CUtensorMapSwizzle */
enum class CuTensorMapSwizzle : int { None = 0, B32 = 1, B64 = 2, B128 = 3 };
/** CUtensorMapInterleave, CUtensorMapL2promotion and CUtensorMapFloatOOBfill: the only values used here. */
enum class CuTensorMapInterleave : int { None = 0 };
enum class CuTensorMapL2Promotion : int { L2B256 = 3 };
enum class CuTensorMapFill : int { Zeros = 0 };

/** CUevent_flags, CUstream_flags */
constexpr unsigned CU_EVENT_TIMED = 1;  // the waiting thread sleeps
constexpr unsigned CU_EVENT_UNTIMED = 3;
constexpr unsigned CU_STREAM_ON_ITS_OWN = 1;  // not ordered against the legacy default stream

/** CUipcMem_flags: devices that must reach each other for an opened memory are made to. */
constexpr unsigned CU_IPC_LAZY_PEERS = 1;

class CudaApi;

/** A function of the driver. Calling it throws a CodedError where the driver does not say success. */
template <typename... Args>
class CudaCall {
 public:
  CudaCall(CudaApi &owner, const char *name, bool isRequired = true);
  explicit operator bool() const { return function_ != nullptr; }
  void operator()(Args... args) const;
  /** The driver's result, for errors that are answers or that nobody can act on (in destructors). */
  CuResult raw(Args... args) const { return function_(args...); }

 private:
  const CudaApi &owner_;
  const char *name_;
  CuResult (*function_)(Args...);
};

/** The functions of one driver library. Never unloaded: the driver has threads and exit handlers of its own. */
class CudaApi {
 private:
  void *handle_;
  std::vector<std::string> missing_;  // above the calls, which fill it

 public:
  /** Oldest driver with all that Hopper needs: clusters, tensor maps. */
  static constexpr int OLDEST_DRIVER = 12000;

  /** Loads and initialises the driver. Throws an error that says what is missing. */
  static std::shared_ptr<const CudaApi> load(const std::string &path);
  CudaApi(const CudaApi &) = delete;
  CudaApi &operator=(const CudaApi &) = delete;

  int driverVersion() const { return driverVersion_; }
  /** Throws the driver's own name and description of a result. The device is the one current on this thread. */
  [[noreturn]] void fail(CuResult result, const std::string &call, const std::string &more = "") const;
  void *find(const char *name, bool isRequired);

  CudaCall<CuResult, const char **> cuGetErrorName{*this, "cuGetErrorName"};
  CudaCall<CuResult, const char **> cuGetErrorString{*this, "cuGetErrorString"};
  CudaCall<unsigned> cuInit{*this, "cuInit"};
  CudaCall<int *> cuDriverGetVersion{*this, "cuDriverGetVersion"};
  CudaCall<int *> cuDeviceGetCount{*this, "cuDeviceGetCount"};
  CudaCall<CuDeviceNumber *, int> cuDeviceGet{*this, "cuDeviceGet"};
  CudaCall<char *, int, CuDeviceNumber> cuDeviceGetName{*this, "cuDeviceGetName"};
  CudaCall<CuUuid *, CuDeviceNumber> cuDeviceGetUuid{*this, "cuDeviceGetUuid_v2"};
  CudaCall<size_t *, CuDeviceNumber> cuDeviceTotalMem{*this, "cuDeviceTotalMem_v2"};
  CudaCall<int *, CuDeviceAttribute, CuDeviceNumber> cuDeviceGetAttribute{*this, "cuDeviceGetAttribute"};
  CudaCall<CuContext *, CuDeviceNumber> cuDevicePrimaryCtxRetain{*this, "cuDevicePrimaryCtxRetain"};
  CudaCall<CuDeviceNumber> cuDevicePrimaryCtxRelease{*this, "cuDevicePrimaryCtxRelease_v2"};
  CudaCall<CuContext> cuCtxSetCurrent{*this, "cuCtxSetCurrent"};
  CudaCall<size_t *, size_t *> cuMemGetInfo{*this, "cuMemGetInfo_v2"};
  CudaCall<CuAddress *, size_t> cuMemAlloc{*this, "cuMemAlloc_v2"};
  CudaCall<CuAddress> cuMemFree{*this, "cuMemFree_v2"};
  /** Addresses, and memory behind them: not on every system (CuDeviceAttribute::MapsMemory). */
  CudaCall<size_t *, const CuAllocationProperties *, int> cuMemGetAllocationGranularity{
      *this, "cuMemGetAllocationGranularity", false};
  CudaCall<CuAddress *, size_t, size_t, CuAddress, unsigned long long> cuMemAddressReserve{*this, "cuMemAddressReserve",
                                                                                           false};
  CudaCall<CuAddress, size_t> cuMemAddressFree{*this, "cuMemAddressFree", false};
  CudaCall<CuAllocation *, size_t, const CuAllocationProperties *, unsigned long long> cuMemCreate{
      *this, "cuMemCreate", false};
  CudaCall<CuAllocation> cuMemRelease{*this, "cuMemRelease", false};
  CudaCall<CuAddress, size_t, size_t, CuAllocation, unsigned long long> cuMemMap{*this, "cuMemMap", false};
  CudaCall<CuAddress, size_t, const CuAccess *, size_t> cuMemSetAccess{*this, "cuMemSetAccess", false};
  CudaCall<CuAddress, size_t> cuMemUnmap{*this, "cuMemUnmap", false};
  CudaCall<void **, size_t, unsigned> cuMemHostAlloc{*this, "cuMemHostAlloc"};
  CudaCall<void *> cuMemFreeHost{*this, "cuMemFreeHost"};
  CudaCall<CuAddress, const void *, size_t, CuStream> cuMemcpyHtoDAsync{*this, "cuMemcpyHtoDAsync_v2"};
  CudaCall<void *, CuAddress, size_t, CuStream> cuMemcpyDtoHAsync{*this, "cuMemcpyDtoHAsync_v2"};
  CudaCall<CuAddress, CuAddress, size_t, CuStream> cuMemcpyDtoDAsync{*this, "cuMemcpyDtoDAsync_v2"};
  CudaCall<CuAddress, unsigned char, size_t, CuStream> cuMemsetD8Async{*this, "cuMemsetD8Async"};
  /** Memory of other processes: not on every system. */
  CudaCall<CuIpcHandle *, CuAddress> cuIpcGetMemHandle{*this, "cuIpcGetMemHandle", false};
  CudaCall<CuAddress *, CuIpcHandle, unsigned> cuIpcOpenMemHandle{*this, "cuIpcOpenMemHandle_v2", false};
  CudaCall<CuAddress> cuIpcCloseMemHandle{*this, "cuIpcCloseMemHandle", false};
  CudaCall<CuAddress *, size_t *, CuAddress> cuMemGetAddressRange{*this, "cuMemGetAddressRange_v2", false};
  CudaCall<CuStream *, unsigned> cuStreamCreate{*this, "cuStreamCreate"};
  CudaCall<CuStream> cuStreamDestroy{*this, "cuStreamDestroy_v2"};
  CudaCall<CuStream> cuStreamSynchronize{*this, "cuStreamSynchronize"};
  CudaCall<CuStream, CuEvent, unsigned> cuStreamWaitEvent{*this, "cuStreamWaitEvent"};
  CudaCall<CuEvent *, unsigned> cuEventCreate{*this, "cuEventCreate"};
  CudaCall<CuEvent> cuEventDestroy{*this, "cuEventDestroy_v2"};
  CudaCall<CuEvent, CuStream> cuEventRecord{*this, "cuEventRecord"};
  CudaCall<CuEvent> cuEventSynchronize{*this, "cuEventSynchronize"};
  CudaCall<float *, CuEvent, CuEvent> cuEventElapsedTime{*this, "cuEventElapsedTime"};
  CudaCall<CuModule *, const void *, unsigned, CuJitOption *, void **> cuModuleLoadDataEx{*this, "cuModuleLoadDataEx"};
  CudaCall<CuModule> cuModuleUnload{*this, "cuModuleUnload"};
  CudaCall<CuFunction *, CuModule, const char *> cuModuleGetFunction{*this, "cuModuleGetFunction"};
  CudaCall<int *, CuFunctionAttribute, CuFunction> cuFuncGetAttribute{*this, "cuFuncGetAttribute"};
  CudaCall<CuFunction, CuFunctionAttribute, int> cuFuncSetAttribute{*this, "cuFuncSetAttribute"};
  /** Both from CUDA 12.4 on. */
  CudaCall<CuFunction> cuFuncLoad{*this, "cuFuncLoad", false};
  CudaCall<CuFunction, size_t, size_t *, size_t *> cuFuncGetParamInfo{*this, "cuFuncGetParamInfo", false};
  CudaCall<int *, CuFunction, int, size_t> cuOccupancyMaxActiveBlocksPerMultiprocessor{
      *this, "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  CudaCall<const CuLaunchConfig *, CuFunction, void **, void **> cuLaunchKernelEx{*this, "cuLaunchKernelEx"};
  CudaCall<CuTensorMap *, CuTensorMapDataType, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
           const uint32_t *, CuTensorMapInterleave, CuTensorMapSwizzle, CuTensorMapL2Promotion, CuTensorMapFill>
      cuTensorMapEncodeTiled{*this, "cuTensorMapEncodeTiled"};
  CudaCall<int *, CuDeviceNumber, CuDeviceNumber> cuDeviceCanAccessPeer{*this, "cuDeviceCanAccessPeer", false};
  CudaCall<CuContext, unsigned> cuCtxEnablePeerAccess{*this, "cuCtxEnablePeerAccess", false};
  CudaCall<CuAddress, CuContext, CuAddress, CuContext, size_t, CuStream> cuMemcpyPeerAsync{*this, "cuMemcpyPeerAsync",
                                                                                           false};

 private:
  explicit CudaApi(void *handle) : handle_(handle) {}
  int driverVersion_ = 0;
};

/** What error messages call the device whose context is current on this thread. */
void nameCurrentDevice(int ordinal);

template <typename... Args>
CudaCall<Args...>::CudaCall(CudaApi &owner, const char *name, bool isRequired)
    : owner_(owner), name_(name), function_(nullptr) {
  void *address = owner.find(name, isRequired);
  static_assert(sizeof(function_) == sizeof(address), "a function pointer fits a data pointer (POSIX)");
  std::memcpy(&function_, &address, sizeof address);
}

template <typename... Args>
void CudaCall<Args...>::operator()(Args... args) const {
  const CuResult result = function_(args...);
  if (result != CU_SUCCESS) owner_.fail(result, name_);
}

}  // namespace tw
#endif
