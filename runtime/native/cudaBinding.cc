// JavaScript's side of the driver, devices, modules and events: checks arguments.
#include "cudaBinding.h"

namespace tw {
namespace {

constexpr const char *SYSTEM_DRIVER = "libcuda.so.1";
constexpr size_t LARGEST_IMAGE = size_t{256} << 20;

/** The driver that new devices use; older devices keep theirs. */
struct LoadedDriver {
  std::mutex mutex;
  std::string path;
  std::shared_ptr<const CudaApi> api;
};

LoadedDriver &loadedDriver() {
  static LoadedDriver driver;
  return driver;
}

std::shared_ptr<const CudaApi> requireDriver() {
  LoadedDriver &driver = loadedDriver();
  const std::lock_guard<std::mutex> lock(driver.mutex);
  if (!driver.api) fail("No CUDA driver is loaded: cuda.load() says why");
  return driver.api;
}

std::shared_ptr<const CudaApi> loadDriver(const std::string &path) {
  LoadedDriver &driver = loadedDriver();
  const std::lock_guard<std::mutex> lock(driver.mutex);
  if (driver.api && driver.path == path) return driver.api;
  driver.api.reset();
  driver.api = CudaApi::load(path);
  driver.path = path;
  return driver.api;
}

/**
 * The driver and the context of a device, made by a thread while JavaScript does something else: starting the driver
 * takes 0.1 to 0.2 s, and a context as much. Callers that need one of them meanwhile wait for it.
 */
class Preparation {
 public:
  Preparation() { loadedDriver(); }  // It outlives this.
  ~Preparation() { join(); }
  Preparation(const Preparation &) = delete;
  Preparation &operator=(const Preparation &) = delete;

  /** Begins with the driver at `path` and, from 0 on, the device `ordinal`; only the first call begins anything. */
  void begin(const std::string &path, int ordinal) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (hasBegun_) return;
    hasBegun_ = true;
    ordinal_ = ordinal;
    thread_ = std::thread([this, path, ordinal] {
      // What is wrong here is wrong again, and reported, where it is needed.
      try {
        auto api = loadDriver(path);
        if (ordinal >= 0) device_ = CudaDevice::open(std::move(api), ordinal);
      } catch (const std::exception &) {
        device_.reset();
      }
    });
  }

  /** The device `ordinal` if it was prepared with `api`, once; otherwise null. */
  std::shared_ptr<CudaDevice> take(const CudaApi &api, int ordinal) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!hasBegun_ || ordinal_ != ordinal) return nullptr;
    join();
    if (device_ == nullptr || &device_->use() != &api) return nullptr;
    return std::move(device_);
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::mutex mutex_;
  bool hasBegun_ = false;
  int ordinal_ = -1;
  std::shared_ptr<CudaDevice> device_;
  std::thread thread_;
};

Preparation &preparation() {
  static Preparation preparation;
  return preparation;
}

std::string driverPath(const Napi::Value &argument) {
  return argument.IsUndefined() ? SYSTEM_DRIVER : stringArg(argument, "path");
}

void prepare(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] {
    const int ordinal = info[1].IsUndefined() ? -1 : static_cast<int>(integerArg(info[1], "ordinal", 0, 1023));
    preparation().begin(driverPath(info[0]), ordinal);
  });
}

Napi::Object toJavaScript(Napi::Env env, const CudaDeviceInfo &info) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("ordinal", info.ordinal);
  object.Set("name", info.name);
  object.Set("uuid", info.uuid);
  Napi::Array capability = Napi::Array::New(env, 2);
  capability.Set(uint32_t{0}, info.capabilityMajor);
  capability.Set(uint32_t{1}, info.capabilityMinor);
  object.Set("capability", capability);
  object.Set("multiprocessors", info.multiprocessors);
  object.Set("totalBytes", numberOf(env, info.totalBytes));
  object.Set("l2Bytes", numberOf(env, info.l2Bytes));
  object.Set("sharedBytesPerBlock", numberOf(env, info.sharedBytesPerBlock));
  object.Set("sharedBytesPerMultiprocessor", numberOf(env, info.sharedBytesPerMultiprocessor));
  object.Set("clockKHz", info.clockKHz);
  return object;
}

Napi::Value load(const Napi::CallbackInfo &info) {
  const Napi::Env env = info.Env();
  const std::string path = driverPath(info[0]);
  Napi::Object object = Napi::Object::New(env);
  try {
    if (!info[0].IsUndefined() && path[0] != '/') fail("a driver library is given by its full path, not " + path);
    const auto api = loadDriver(path);
    int count = 0;
    nameCurrentDevice(-1);
    api->cuDeviceGetCount(&count);
    if (count < 1) fail("the driver shows no device");
    Napi::Array devices = Napi::Array::New(env, static_cast<size_t>(count));
    for (int i = 0; i < count; i++)
      devices.Set(static_cast<uint32_t>(i), toJavaScript(env, CudaDevice::describe(*api, i)));
    object.Set("driverVersion", api->driverVersion());
    object.Set("devices", devices);
    object.Set("ok", true);
  } catch (const Napi::Error &) {
    throw;
  } catch (const std::exception &error) {
    object.Set("ok", false);
    object.Set("reason", std::string(error.what()));
  }
  return object;
}

}  // namespace

const napi_type_tag CudaDeviceWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'6465'7601};
const napi_type_tag CudaModuleWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'6d6f'6401};
const napi_type_tag CudaEventWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'6576'7401};

CudaDeviceWrap::CudaDeviceWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] {
    const int ordinal = static_cast<int>(integerArg(info[0], "ordinal", 0, 1023));
    auto api = requireDriver();
    auto prepared = preparation().take(*api, ordinal);
    return prepared ? prepared : CudaDevice::open(std::move(api), ordinal);
  });
}

Napi::Value CudaDeviceWrap::info(const Napi::CallbackInfo &info) { return toJavaScript(info.Env(), get()->info()); }

Napi::Value CudaDeviceWrap::memory(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    size_t free = 0;
    size_t total = 0;
    get()->use().cuMemGetInfo(&free, &total);
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("freeBytes", numberOf(info.Env(), free));
    object.Set("totalBytes", numberOf(info.Env(), total));
    return object;
  });
}

Napi::Value CudaDeviceWrap::stream(const Napi::CallbackInfo &info) {
  return Napi::BigInt::New(info.Env(), static_cast<uint64_t>(reinterpret_cast<uintptr_t>(get()->stream())));
}

void CudaDeviceWrap::makeCurrent(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] { get()->use(); });
}

void CudaDeviceWrap::synchronize(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] { get()->inTurn([&](const CudaApi &api) { api.cuStreamSynchronize(get()->stream()); }); });
}

Napi::Function CudaDeviceWrap::init(Napi::Env env) {
  return DefineClass(
      env, "CudaDevice",
      {InstanceAccessor<&CudaDeviceWrap::info>("info"), InstanceAccessor<&CudaDeviceWrap::stream>("stream"),
       InstanceMethod<&CudaDeviceWrap::memory>("memory"), InstanceMethod<&CudaDeviceWrap::makeCurrent>("makeCurrent"),
       InstanceMethod<&CudaDeviceWrap::synchronize>("synchronize"),
       InstanceMethod<&CudaDeviceWrap::release>("release")});
}

CudaModuleWrap::CudaModuleWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] {
    const auto device = deviceArg(info[0]);
    const auto [data, bytes] = typedArg<uint8_t>(info[1], "image", napi_uint8_array);
    if (bytes == 0 || bytes > LARGEST_IMAGE)
      fail("A module's image of " + std::to_string(bytes) + " bytes cannot be right");
    return std::make_shared<CudaModule>(device, std::vector<char>(data, data + bytes));
  });
}

Napi::Value CudaModuleWrap::function(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    const CudaFunctionInfo &found = get()->function(stringArg(info[0], "symbol")).info;
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("registers", found.registers);
    object.Set("localBytes", found.localBytes);
    object.Set("sharedBytes", found.sharedBytes);
    object.Set("constantBytes", found.constantBytes);
    object.Set("maxThreads", found.maxThreads);
    object.Set("binaryVersion", found.binaryVersion);
    return object;
  });
}

Napi::Value CudaModuleWrap::blocksPerMultiprocessor(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    const auto threads = static_cast<int>(integerArg(info[1], "threads", 1, 1024));
    const auto sharedBytes = static_cast<size_t>(integerArg(info[2], "sharedBytes", 0, INT32_MAX));
    return Napi::Number::New(info.Env(),
                             get()->blocksPerMultiprocessor(stringArg(info[0], "symbol"), threads, sharedBytes));
  });
}

Napi::Function CudaModuleWrap::init(Napi::Env env) {
  return DefineClass(env, "CudaModule",
                     {InstanceMethod<&CudaModuleWrap::function>("function"),
                      InstanceMethod<&CudaModuleWrap::blocksPerMultiprocessor>("blocksPerMultiprocessor"),
                      InstanceMethod<&CudaModuleWrap::release>("release")});
}

CudaEventWrap::CudaEventWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] { return std::make_shared<CudaEvent>(deviceArg(info[0]), true); });
}

void CudaEventWrap::record(const Napi::CallbackInfo &info) {
  coded(info.Env(),
        [&] { get()->device()->inTurn([&](const CudaApi &) { get()->record(get()->device()->stream()); }); });
}

void CudaEventWrap::synchronize(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] { get()->wait(); });
}

Napi::Value CudaEventWrap::millisecondsSince(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    const auto earlier = cudaArg<CudaEventWrap>(info[0], "earlier");
    requireDevice(*get()->device(), *earlier->device(), "earlier");
    return Napi::Number::New(info.Env(), get()->millisecondsSince(*earlier));
  });
}

Napi::Function CudaEventWrap::init(Napi::Env env) {
  return DefineClass(
      env, "CudaEvent",
      {InstanceMethod<&CudaEventWrap::record>("record"), InstanceMethod<&CudaEventWrap::synchronize>("synchronize"),
       InstanceMethod<&CudaEventWrap::millisecondsSince>("millisecondsSince"),
       InstanceMethod<&CudaEventWrap::release>("release")});
}

Napi::Object initCuda(Napi::Env env) {
  Napi::Object cuda = Napi::Object::New(env);
  cuda.Set("load", Napi::Function::New<load>(env, "load"));
  cuda.Set("prepare", Napi::Function::New<prepare>(env, "prepare"));
  cuda.Set("Device", CudaDeviceWrap::init(env));
  cuda.Set("Memory", CudaMemoryWrap::init(env));
  cuda.Set("Module", CudaModuleWrap::init(env));
  cuda.Set("Event", CudaEventWrap::init(env));
  cuda.Set("Upload", CudaUploadWrap::init(env));
  cuda.Set("Program", CudaProgramWrap::init(env));
  cuda.Set("Clock", CudaClockWrap::init(env));
  cuda.Set("Pipeline", CudaPipelineWrap::init(env));
  return cuda;
}

}  // namespace tw
