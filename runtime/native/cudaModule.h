// Machine code on a device.
#ifndef TILEWRIGHT_CUDA_MODULE_H
#define TILEWRIGHT_CUDA_MODULE_H
#include <map>

#include "cudaDevice.h"

namespace tw {

struct CudaFunctionInfo {
  int registers = 0;
  int localBytes = 0;
  int sharedBytes = 0;
  int constantBytes = 0;
  int maxThreads = 0;
  int binaryVersion = 0;
};

/** A kernel of a module, valid while that lives. */
struct CudaFunction {
  std::string symbol;
  CuFunction handle = nullptr;
  CudaFunctionInfo info;
  /** What launches may ask for so far; only ever raised, since programs share kernels. */
  size_t dynamicShared = 0;
};

class CudaModule {
 public:
  /** A cubin or PTX text. Throws the assembler's log with the driver's error. */
  CudaModule(std::shared_ptr<CudaDevice> device, std::vector<char> image);
  ~CudaModule();
  CudaModule(const CudaModule &) = delete;
  CudaModule &operator=(const CudaModule &) = delete;

  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  /** Asked of the driver once. Throws where there is none. */
  CudaFunction &function(const std::string &symbol);
  /** Lets launches of a kernel ask for this many bytes. Throws where a block cannot have them. */
  void allowShared(CudaFunction &function, size_t bytes);
  /** Lets a kernel be launched in clusters of more than eight blocks. The driver throws where there are none. */
  void allowLargeClusters(CudaFunction &function);
  int blocksPerMultiprocessor(const std::string &symbol, int threads, size_t sharedBytes);
  /** Checks number and sizes of a kernel's parameters, as far as its image and the driver tell them. */
  void requireParameters(const CudaFunction &function, const std::vector<size_t> &sizes) const;

 private:
  std::shared_ptr<CudaDevice> device_;
  CuModule module_ = nullptr;
  std::map<std::string, CudaFunction> functions_;
  /** By kernel, as far as the image tells. */
  std::map<std::string, size_t> parameterCounts_;
};

}  // namespace tw
#endif
