// JavaScript's handles of CUDA objects. runtime/cuda/addon.ts is their typed side.
#ifndef TILEWRIGHT_CUDA_BINDING_H
#define TILEWRIGHT_CUDA_BINDING_H
#include "cudaMemory.h"
#include "cudaModule.h"
#include "cudaPipeline.h"
#include "cudaProgram.h"
#include "cudaUpload.h"

namespace tw {

/** A JavaScript object that shares a native one until it is released. */
template <typename Wrap, typename T>
class CudaHandle : public Napi::ObjectWrap<Wrap> {
 public:
  explicit CudaHandle(const Napi::CallbackInfo &info) : Napi::ObjectWrap<Wrap>(info) {}
  const std::shared_ptr<T> &get() const {
    if (!held_) fail(std::string("This ") + Wrap::NAME + " was released already");
    return held_;
  }

 protected:
  template <typename Make>
  void hold(const Napi::CallbackInfo &info, Make &&make) {
    held_ = coded(info.Env(), make);
    info.This().template As<Napi::Object>().TypeTag(&Wrap::TAG);
  }
  std::shared_ptr<T> held_;
};

class CudaDeviceWrap : public CudaHandle<CudaDeviceWrap, CudaDevice> {
 public:
  static constexpr const char *NAME = "Device";
  static const napi_type_tag TAG;
  explicit CudaDeviceWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value info(const Napi::CallbackInfo &info);
  Napi::Value memory(const Napi::CallbackInfo &info);
  Napi::Value stream(const Napi::CallbackInfo &info);
  void makeCurrent(const Napi::CallbackInfo &info);
  void synchronize(const Napi::CallbackInfo &info);
};

class CudaMemoryWrap : public CudaHandle<CudaMemoryWrap, CudaMemory> {
 public:
  static constexpr const char *NAME = "device Memory";
  static const napi_type_tag TAG;
  explicit CudaMemoryWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value sizeBytes(const Napi::CallbackInfo &info);
  Napi::Value address(const Napi::CallbackInfo &info);
  void write(const Napi::CallbackInfo &info);
  Napi::Value read(const Napi::CallbackInfo &info);
  Napi::Value writeAsync(const Napi::CallbackInfo &info);
  Napi::Value writeBeside(const Napi::CallbackInfo &info);
  Napi::Value readAsync(const Napi::CallbackInfo &info);
  void fill(const Napi::CallbackInfo &info);
  void copyFrom(const Napi::CallbackInfo &info);
  Napi::Value share(const Napi::CallbackInfo &info);
  Napi::Value copyFromProcess(const Napi::CallbackInfo &info);
  Napi::Value map(const Napi::CallbackInfo &info);
  Napi::Value usableBytes(const Napi::CallbackInfo &info);
};

class CudaModuleWrap : public CudaHandle<CudaModuleWrap, CudaModule> {
 public:
  static constexpr const char *NAME = "Module";
  static const napi_type_tag TAG;
  explicit CudaModuleWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value function(const Napi::CallbackInfo &info);
  Napi::Value blocksPerMultiprocessor(const Napi::CallbackInfo &info);
};

class CudaEventWrap : public CudaHandle<CudaEventWrap, CudaEvent> {
 public:
  static constexpr const char *NAME = "Event";
  static const napi_type_tag TAG;
  explicit CudaEventWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  void record(const Napi::CallbackInfo &info);
  void synchronize(const Napi::CallbackInfo &info);
  Napi::Value millisecondsSince(const Napi::CallbackInfo &info);
};

class CudaClockWrap : public CudaHandle<CudaClockWrap, CudaClock> {
 public:
  static constexpr const char *NAME = "Clock";
  static const napi_type_tag TAG;
  explicit CudaClockWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value errorMilliseconds(const Napi::CallbackInfo &info);
};

class CudaUploadWrap : public CudaHandle<CudaUploadWrap, CudaUpload> {
 public:
  static constexpr const char *NAME = "Upload";
  static const napi_type_tag TAG;
  explicit CudaUploadWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value copiedBytes(const Napi::CallbackInfo &info);
  Napi::Value copy(const Napi::CallbackInfo &info);
  Napi::Value load(const Napi::CallbackInfo &info);
};

class CudaProgramWrap : public CudaHandle<CudaProgramWrap, CudaProgram> {
 public:
  static constexpr const char *NAME = "Program";
  static const napi_type_tag TAG;
  explicit CudaProgramWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value run(const Napi::CallbackInfo &info);
  Napi::Value time(const Napi::CallbackInfo &info);
};

class CudaPipelineWrap : public CudaHandle<CudaPipelineWrap, CudaPipeline> {
 public:
  static constexpr const char *NAME = "Pipeline";
  static const napi_type_tag TAG;
  explicit CudaPipelineWrap(const Napi::CallbackInfo &info);
  static Napi::Function init(Napi::Env env);

 private:
  void release(const Napi::CallbackInfo &) { held_.reset(); }
  Napi::Value routes(const Napi::CallbackInfo &info);
  Napi::Value run(const Napi::CallbackInfo &info);
};

template <typename Wrap>
auto cudaArg(const Napi::Value &value, const std::string &what) {
  return unwrap<Wrap>(value, what)->get();
}

inline std::shared_ptr<CudaDevice> deviceArg(const Napi::Value &value) {
  return cudaArg<CudaDeviceWrap>(value, "device");
}

inline Napi::Number numberOf(Napi::Env env, size_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

/** Leaves a place at the end of a block: the JavaScript thread may be waiting for its turn. */
class Leaver {
 public:
  explicit Leaver(Turnstile::Place &place) : place_(place) {}
  ~Leaver() { place_.leave(); }
  Leaver(const Leaver &) = delete;
  Leaver &operator=(const Leaver &) = delete;

 private:
  Turnstile::Place &place_;
};

/** An array's length, which must be at most `most`. */
inline uint32_t boundedLength(const Napi::Array &array, uint32_t most, const std::string &what) {
  if (array.Length() > most)
    fail(what + " has " + std::to_string(array.Length()) + " entries, at most " + std::to_string(most) +
         " are possible");
  return array.Length();
}

/** An index into `count` things. */
inline size_t indexArg(const Napi::Value &value, size_t count, const std::string &what) {
  if (count == 0) fail(what + ": there is nothing to choose from");
  return static_cast<size_t>(integerArg(value, what, 0, static_cast<int64_t>(count) - 1));
}

inline size_t extentArg(const Napi::Value &value, const std::string &what, int64_t low, int64_t high) {
  return static_cast<size_t>(integerArg(value, what, low, high));
}

/** A program's inputs from an array of arrays to a pinned area of `inputBytes` bytes. */
void packInputs(const CudaProgram &program, uint8_t *area, const Napi::Value &value, const Counts &counts);

/** A program's outputs from a pinned area, as an array of ArrayBuffers. */
Napi::Array copyOutputs(Napi::Env env, const CudaProgram &program, const uint8_t *area, const Counts &counts);

/** { begin, end } */
Napi::Object toSpan(Napi::Env env, double begin, double end);

constexpr uint32_t MAX_CUDA_LAUNCHES = 1 << 20;

/** From a CudaProgramBinding (runtime/cuda/addon.ts). Throws what is wrong with it. */
std::shared_ptr<CudaProgram> parseCudaProgram(const Napi::Object &object);

/** Fails where an object belongs to another device than the one that is to use it. */
inline void requireDevice(const CudaDevice &wanted, const CudaDevice &found, const std::string &what) {
  if (&wanted != &found) fail(what + " belongs to another device object");
}

}  // namespace tw
#endif
