// class CudaProgram: checks requests and turns them into runs.
#include <algorithm>

#include "cudaBinding.h"

namespace tw {

void packInputs(const CudaProgram &program, uint8_t *area, const Napi::Value &value, const Counts &counts) {
  const Napi::Array arrays = arrayArg(value, "inputs");
  if (arrays.Length() != program.inputs.size()) {
    fail("The program takes " + std::to_string(program.inputs.size()) + " inputs, not " +
         std::to_string(arrays.Length()));
  }
  if (program.inputBytes == 0) return;
  for (uint32_t i = 0; i < arrays.Length(); i++) {
    const CudaPort &port = program.inputs[i];
    const uint8_t *data = port.parseData(arrays.Get(i), counts, "inputs[" + std::to_string(i) + "]");
    uint8_t *target = area + port.pinnedOffset;
    // What is copied beside the input is zero. Most of the area is not: a list of keys has room for 16 MB.
    const size_t bytes = port.spanBytes(counts);
    const size_t cleared = port.stride == port.columns ? bytes : 0;
    const size_t end = std::min(port.roomBytes, paddedBytes(bytes, port.pinnedBytes) + MAX_COPIED_GAP);
    if (end > cleared) std::memset(target + cleared, 0, end - cleared);
    port.scatter(target, data, counts);
  }
}

Napi::Array copyOutputs(Napi::Env env, const CudaProgram &program, const uint8_t *area, const Counts &counts) {
  Napi::Array outputs = Napi::Array::New(env, program.outputs.size());
  for (size_t i = 0; i < program.outputs.size(); i++) {
    const CudaPort &port = program.outputs[i];
    outputs.Set(static_cast<uint32_t>(i), port.gather(env, area + port.pinnedOffset, counts));
  }
  return outputs;
}

Napi::Object toSpan(Napi::Env env, double begin, double end) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("begin", begin);
  object.Set("end", end);
  return object;
}

namespace {

constexpr int64_t MAX_SAMPLES = 100000;

CudaRunOptions parseRunOptions(const CudaProgram &program, const Napi::Object &request) {
  CudaRunOptions options;
  options.isTimed = optionalFlag(request, "isTimed");
  options.isSynchronous = optionalFlag(request, "isSynchronous");
  options.skipsAdapters = optionalFlag(request, "skipsAdapters");
  options.end = program.launches.size();
  const Napi::Value range = request.Get("launches");
  if (range.IsUndefined()) return options;
  const Napi::Object object = objectArg(range, "launches");
  options.end = extentArg(object.Get("end"), "launches.end", 0, static_cast<int64_t>(program.launches.size()));
  options.first = extentArg(object.Get("first"), "launches.first", 0, static_cast<int64_t>(options.end));
  return options;
}

CudaTimeOptions parseTimeOptions(const CudaProgram &program, const Napi::Object &request) {
  CudaTimeOptions options;
  const Napi::Array launches = arrayArg(request.Get("launches"), "launches");
  for (uint32_t i = 0; i < boundedLength(launches, MAX_CUDA_LAUNCHES, "launches"); i++) {
    options.launches.push_back(
        indexArg(launches.Get(i), program.launches.size(), "launches[" + std::to_string(i) + "]"));
  }
  if (options.launches.empty()) fail("launches names no launch to time");
  options.warmup = extentArg(request.Get("warmup"), "warmup", 0, MAX_SAMPLES);
  options.repeats = extentArg(request.Get("repeats"), "repeats", 1, MAX_SAMPLES);
  const Napi::Value perSample = request.Get("perSample");
  if (!perSample.IsUndefined()) options.perSample = extentArg(perSample, "perSample", 1, MAX_SAMPLES);
  const Napi::Value flushBytes = request.Get("flushBytes");
  if (!flushBytes.IsUndefined()) options.flushBytes = extentArg(flushBytes, "flushBytes", 0, int64_t{1} << 40);
  return options;
}

Napi::Value describe(Napi::Env env, const CudaProgram &program, const CudaArea &area, const Counts &counts,
                     bool isTimed, const CudaRunResult &result) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("outputs", copyOutputs(env, program, area.outputs ? area.outputs->data() : nullptr, counts));
  object.Set("milliseconds", result.milliseconds);
  if (program.clock) object.Set("span", toSpan(env, result.begin, result.end));
  if (isTimed) object.Set("launchMilliseconds", toFloat64(env, result.launchMilliseconds));
  return object;
}

}  // namespace

const napi_type_tag CudaProgramWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'7072'6f01};

CudaProgramWrap::CudaProgramWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] { return parseCudaProgram(objectArg(info[0], "binding")); });
}

Napi::Value CudaProgramWrap::run(const Napi::CallbackInfo &info) {
  const auto program = get();
  const Napi::Object request = objectArg(info[0], "request");
  const Counts counts = program->extents.parseCounts(request.Get("extents"));
  const CudaRunOptions options = parseRunOptions(*program, request);
  auto area = program->takeArea(program);
  packInputs(*program, area->inputs ? area->inputs->data() : nullptr, request.Get("inputs"), counts);
  auto place = program->device->takePlace();
  auto result = std::make_shared<CudaRunResult>();
  return PromiseWorker::start(
      info.Env(), [=] { *result = program->run(*area, *place, counts, options); },
      [=](Napi::Env env) { return describe(env, *program, *area, counts, options.isTimed, *result); }, place);
}

Napi::Value CudaProgramWrap::time(const Napi::CallbackInfo &info) {
  const auto program = get();
  const Napi::Object request = objectArg(info[0], "request");
  const Counts counts = program->extents.parseCounts(request.Get("extents"));
  const CudaTimeOptions options = parseTimeOptions(*program, request);
  auto area = program->takeArea(program);
  const bool hasInputs = !request.Get("inputs").IsUndefined();
  if (hasInputs) packInputs(*program, area->inputs ? area->inputs->data() : nullptr, request.Get("inputs"), counts);
  auto place = program->device->takePlace();
  auto result = std::make_shared<std::vector<double>>();
  return PromiseWorker::start(
      info.Env(), [=] { *result = program->time(*area, *place, counts, hasInputs, options); },
      [=](Napi::Env env) -> Napi::Value { return toFloat64(env, *result); }, place);
}

Napi::Function CudaProgramWrap::init(Napi::Env env) {
  return DefineClass(env, "CudaProgram",
                     {InstanceMethod<&CudaProgramWrap::run>("run"), InstanceMethod<&CudaProgramWrap::time>("time"),
                      InstanceMethod<&CudaProgramWrap::release>("release")});
}

}  // namespace tw
