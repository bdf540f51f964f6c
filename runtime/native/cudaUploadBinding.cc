// JavaScript's side of uploads: checks arguments, chooses threads.
#include <algorithm>
#include <thread>

#include "cudaBinding.h"
#include "encodedBinding.h"

namespace tw {
namespace {

constexpr int64_t SMALLEST_BUFFER = 4096;
constexpr int64_t LARGEST_BUFFER = int64_t{1} << 30;
constexpr int64_t MAX_THREADS = 64;
constexpr int64_t MAX_BUFFERS = 64;
constexpr uint32_t MAX_PARTS = 1 << 20;
constexpr uint32_t MAX_STEPS = 1 << 20;

/** Small enough that what is read is still in the cache of the core when the bus fetches it. */
constexpr size_t DEFAULT_BUFFER = size_t{2} << 20;
/** Of a thread. A thread that waits for the bus is woken late: what the bus does meanwhile must be in other buffers. */
constexpr size_t DEFAULT_BUFFERS = 4;
/** Threads past this many add nothing on a PCIe 5 bus. */
constexpr unsigned DEFAULT_MOST_THREADS = 8;

size_t defaultThreads() { return std::clamp(std::thread::hardware_concurrency() / 2, 1u, DEFAULT_MOST_THREADS); }

/** A range of whole elements of a matrix that is copied as f32. */
void requireElements(const Encoded &matrix, size_t offset, size_t bytes, const std::string &what) {
  const size_t size = matrix.rows * matrix.readColumns() * sizeof(float);
  if (offset % sizeof(float) != 0 || bytes % sizeof(float) != 0 || !isInside(offset, bytes, size))
    fail(what + ": " + std::to_string(bytes) + " bytes at " + std::to_string(offset) + " are no elements of a matrix " +
         "of " + std::to_string(size) + " bytes");
}

std::vector<CudaUploadPart> parseParts(const CudaUpload &upload, const Napi::Value &value, const std::string &name) {
  const Napi::Array list = arrayArg(value, name);
  std::vector<CudaUploadPart> parts;
  for (uint32_t i = 0; i < boundedLength(list, MAX_PARTS, name); i++) {
    const std::string what = name + "[" + std::to_string(i) + "]";
    const Napi::Object object = objectArg(list.Get(i), what);
    CudaUploadPart part;
    const Napi::Value encoded = object.Get("encoded");
    if (encoded.IsUndefined()) part.source = memoryArg(object.Get("source"), what + ".source");
    else part.encoded = encodedArg(encoded, what + ".encoded");
    part.sourceOffset = sizeArg(object.Get("sourceOffset"), what + ".sourceOffset");
    part.target = cudaArg<CudaMemoryWrap>(object.Get("target"), what + ".target");
    part.targetOffset = sizeArg(object.Get("targetOffset"), what + ".targetOffset");
    part.bytes = sizeArg(object.Get("bytes"), what + ".bytes");
    requireDevice(*upload.device(), *part.target->device(), what + ".target");
    if (part.source) part.source->requireInside(part.sourceOffset, part.bytes, what + ".source");
    else requireElements(*part.encoded, part.sourceOffset, part.bytes, what);
    part.target->requireInside(part.targetOffset, part.bytes, what + ".target");
    parts.push_back(std::move(part));
  }
  return parts;
}

CudaUploadStep parseStep(const CudaUpload &upload, const CudaProgram &program, const Napi::Value &value, size_t index) {
  const std::string what = "steps[" + std::to_string(index) + "]";
  const Napi::Object object = objectArg(value, what);
  const Napi::Object launches = objectArg(object.Get("launches"), what + ".launches");
  CudaUploadStep step;
  step.parts = parseParts(upload, object.Get("parts"), what + ".parts");
  step.endLaunch =
      extentArg(launches.Get("end"), what + ".launches.end", 0, static_cast<int64_t>(program.launches.size()));
  step.firstLaunch =
      extentArg(launches.Get("first"), what + ".launches.first", 0, static_cast<int64_t>(step.endLaunch));
  // Of earlier steps only: what waits for itself or for what comes after it never ends.
  step.after = extentArg(object.Get("after"), what + ".after", 0, static_cast<int64_t>(index));
  return step;
}

Napi::Value toJavaScript(Napi::Env env, const CudaUploadTimes &times) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("total", times.total);
  object.Set("reading", times.reading);
  object.Set("bus", times.bus);
  object.Set("launches", times.launches);
  object.Set("device", times.device);
  return object;
}

}  // namespace

const napi_type_tag CudaUploadWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'7570'6c01};

CudaUploadWrap::CudaUploadWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] {
    size_t buffer = DEFAULT_BUFFER;
    size_t threads = defaultThreads();
    size_t buffers = DEFAULT_BUFFERS;
    if (!info[1].IsUndefined()) {
      const Napi::Object options = objectArg(info[1], "options");
      const Napi::Value bytes = options.Get("bufferBytes");
      const Napi::Value count = options.Get("threads");
      const Napi::Value each = options.Get("buffers");
      if (!bytes.IsUndefined())
        buffer = static_cast<size_t>(integerArg(bytes, "bufferBytes", SMALLEST_BUFFER, LARGEST_BUFFER));
      if (!count.IsUndefined()) threads = static_cast<size_t>(integerArg(count, "threads", 1, MAX_THREADS));
      if (!each.IsUndefined()) buffers = static_cast<size_t>(integerArg(each, "buffers", 1, MAX_BUFFERS));
    }
    return std::make_shared<CudaUpload>(deviceArg(info[0]), buffer, threads, buffers);
  });
}

Napi::Value CudaUploadWrap::copiedBytes(const Napi::CallbackInfo &info) {
  return numberOf(info.Env(), get()->copiedBytes());
}

Napi::Value CudaUploadWrap::copy(const Napi::CallbackInfo &info) {
  const auto upload = get();
  auto steps = std::make_shared<std::vector<CudaUploadStep>>(1);
  steps->front().parts = parseParts(*upload, info[0], "parts");
  auto place = upload->takePlace();
  auto seconds = std::make_shared<double>(0);
  return PromiseWorker::start(
      info.Env(),
      [=] {
        const Leaver leaver(*place);
        place->wait();
        *seconds = upload->run(*steps, nullptr).total;
      },
      [=](Napi::Env env) -> Napi::Value { return Napi::Number::New(env, *seconds); }, place);
}

Napi::Value CudaUploadWrap::load(const Napi::CallbackInfo &info) {
  const auto upload = get();
  const auto program = cudaArg<CudaProgramWrap>(info[0], "program");
  requireDevice(*upload->device(), *program->device, "program");
  if (program->extents.size() > 0) fail("program has extents; what loads weights has none");
  const Napi::Array list = arrayArg(info[1], "steps");
  auto steps = std::make_shared<std::vector<CudaUploadStep>>();
  coded(info.Env(), [&] {
    for (uint32_t i = 0; i < boundedLength(list, MAX_STEPS, "steps"); i++)
      steps->push_back(parseStep(*upload, *program, list.Get(i), i));
  });
  // Copies wait for no launch, so the holder of the first turn gets the second.
  auto place = upload->takePlace();
  auto devicePlace = upload->device()->takePlace();
  auto times = std::make_shared<CudaUploadTimes>();
  return PromiseWorker::start(
      info.Env(),
      [=] {
        const Leaver leaver(*place);
        const Leaver deviceLeaver(*devicePlace);
        place->wait();
        devicePlace->wait();
        *times = upload->run(*steps, program.get());
      },
      [=](Napi::Env env) { return toJavaScript(env, *times); },
      std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(place, devicePlace));
}

Napi::Function CudaUploadWrap::init(Napi::Env env) {
  return DefineClass(
      env, "CudaUpload",
      {InstanceAccessor<&CudaUploadWrap::copiedBytes>("copiedBytes"), InstanceMethod<&CudaUploadWrap::copy>("copy"),
       InstanceMethod<&CudaUploadWrap::load>("load"), InstanceMethod<&CudaUploadWrap::release>("release")});
}

}  // namespace tw
