// class CudaPipeline and class CudaClock: checks requests, turns them into jobs and jobs into promises.
#include "cudaBinding.h"

namespace tw {
namespace {

constexpr uint32_t MAX_STAGES = 64;
constexpr uint32_t MAX_ARENAS = 8;
constexpr uint32_t MAX_PROGRAMS = 4096;
constexpr uint32_t MAX_CROSSINGS = 1024;
constexpr int64_t MAX_IN_FLIGHT = 256;

CudaPipelineStage parseStage(const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  CudaPipelineStage stage;
  stage.device = cudaArg<CudaDeviceWrap>(object.Get("device"), what + ".device");
  stage.clock = cudaArg<CudaClockWrap>(object.Get("clock"), what + ".clock");
  requireDevice(*stage.device, *stage.clock->device(), what + ".clock");
  const Napi::Array arenas = arrayArg(object.Get("arenas"), what + ".arenas");
  for (uint32_t i = 0; i < boundedLength(arenas, MAX_ARENAS, what + ".arenas"); i++) {
    const std::string name = what + ".arenas[" + std::to_string(i) + "]";
    stage.arenas.push_back(cudaArg<CudaMemoryWrap>(arenas.Get(i), name));
    requireDevice(*stage.device, *stage.arenas.back()->device(), name);
  }
  if (stage.arenas.empty()) fail(what + " has no arena");
  const Napi::Array programs = arrayArg(object.Get("programs"), what + ".programs");
  for (uint32_t i = 0; i < boundedLength(programs, MAX_PROGRAMS, what + ".programs"); i++) {
    const auto program = cudaArg<CudaProgramWrap>(programs.Get(i), what + ".programs[" + std::to_string(i) + "]");
    stage.inputBytes = std::max(stage.inputBytes, program->inputBytes);
    stage.outputBytes = std::max(stage.outputBytes, program->outputBytes);
  }
  stage.crossingBytes = sizeArg(object.Get("crossingBytes"), what + ".crossingBytes");
  return stage;
}

std::shared_ptr<CudaPipeline> parsePipeline(const Napi::Object &object) {
  const Napi::Array array = arrayArg(object.Get("stages"), "stages");
  std::vector<CudaPipelineStage> stages;
  for (uint32_t i = 0; i < boundedLength(array, MAX_STAGES, "stages"); i++) {
    stages.push_back(parseStage(array.Get(i), "stages[" + std::to_string(i) + "]"));
    for (const auto &arena : stages.back().arenas) {
      if (stages.back().arenas.size() != stages[0].arenas.size() || arena->size() != stages[0].arenas[0]->size())
        fail("Every stage has as many arenas of the same size");
    }
  }
  if (stages.empty()) fail("A pipeline has at least one stage");
  const size_t inFlight = extentArg(object.Get("inFlight"), "inFlight", 1, MAX_IN_FLIGHT);
  return std::make_shared<CudaPipeline>(std::move(stages), inFlight, booleanArg(object.Get("usesPeers"), "usesPeers"));
}

CudaCrossing parseCrossing(const Napi::Value &value, const CudaPipelineStage &stage, const Extents &extents,
                           const Counts &counts, size_t &total, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  CudaCrossing crossing;
  crossing.offset = sizeArg(object.Get("offset"), what + ".offset");
  crossing.rows = extents.parseExtent(object.Get("rows"), what + ".rows");
  crossing.rowBytes = sizeArg(object.Get("rowBytes"), what + ".rowBytes");
  const size_t bytes = product(crossing.rows.in(counts), crossing.rowBytes, "a crossing");
  stage.arenas[0]->requireInside(crossing.offset, bytes, what);
  total += bytes;
  if (total > stage.crossingBytes) fail(what + ": more crosses to the next stage than the pipeline was made for");
  return crossing;
}

CudaStageRun parseStageRun(const Napi::Value &value, const CudaPipelineStage &stage, Counts &counts,
                           const Napi::Object &request, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  CudaStageRun run;
  run.program = cudaArg<CudaProgramWrap>(object.Get("program"), what + ".program");
  requireDevice(*stage.device, *run.program->device, what + ".program");
  counts = run.program->extents.parseCounts(request.Get("extents"));
  if (run.program->inputBytes > stage.inputBytes || run.program->outputBytes > stage.outputBytes)
    fail(what + ".program has more inputs or outputs than the pipeline was made for");
  const Napi::Array crossings = arrayArg(object.Get("crossings"), what + ".crossings");
  size_t total = 0;
  for (uint32_t i = 0; i < boundedLength(crossings, MAX_CROSSINGS, what + ".crossings"); i++) {
    run.crossings.push_back(parseCrossing(crossings.Get(i), stage, run.program->extents, counts, total,
                                          what + ".crossings[" + std::to_string(i) + "]"));
  }
  return run;
}

uint8_t *dataOf(const std::unique_ptr<PinnedMemory> &memory) { return memory ? memory->data() : nullptr; }

/** A micro-batch on its way. Made and deleted on the JavaScript thread, which also gives its flight back. */
struct Call {
  explicit Call(Napi::Env env) : deferred(Napi::Promise::Deferred::New(env)) {}
  ~Call() {
    if (job.flight != nullptr) job.flight->isTaken = false;
  }
  std::shared_ptr<CudaPipeline> pipeline;
  CudaPipelineJob job;
  Napi::Promise::Deferred deferred;
};

Napi::Value describe(Napi::Env env, const Call &call) {
  const CudaPipelineJob &job = call.job;
  Napi::Object object = Napi::Object::New(env);
  object.Set("outputs",
             copyOutputs(env, *job.stages.back().program, dataOf(job.flight->stages.back().outputs), job.counts));
  Napi::Array stages = Napi::Array::New(env, job.times.size());
  for (size_t i = 0; i < job.times.size(); i++) {
    const CudaStageTimes &times = job.times[i];
    Napi::Object stage = Napi::Object::New(env);
    stage.Set("compute", toSpan(env, times.compute.begin, times.compute.end));
    stage.Set("sent", toSpan(env, times.sent.begin, times.sent.end));
    if (times.received.end > 0) stage.Set("received", toSpan(env, times.received.begin, times.received.end));
    if (job.isTimed) stage.Set("launchMilliseconds", toFloat64(env, times.launchMilliseconds));
    stages.Set(static_cast<uint32_t>(i), stage);
  }
  object.Set("stages", stages);
  return object;
}

void settle(Napi::Env env, Call *raw) {
  // Ends with its flight free, before a continuation of the promise may ask for one.
  const Napi::HandleScope scope(env);
  std::unique_ptr<Call> call(raw);
  const Napi::Promise::Deferred deferred = call->deferred;
  try {
    if (call->job.error) std::rethrow_exception(call->job.error);
    const Napi::Value answer = describe(env, *call);
    call.reset();
    deferred.Resolve(answer);
  } catch (const CodedError &error) {
    call.reset();
    deferred.Reject(error.toJavaScript(env).Value());
  } catch (const Napi::Error &error) {
    call.reset();
    deferred.Reject(error.Value());
  } catch (const std::exception &error) {
    call.reset();
    deferred.Reject(Napi::Error::New(env, error.what()).Value());
  }
}

/** Where the environment is being torn down nobody is left to tell, and the process ends: the call stays as it is. */
void settleInJavaScript(Napi::Env env, Napi::Function, std::nullptr_t *, Call *call) {
  if (env != nullptr && call != nullptr) settle(env, call);
}

using Done = Napi::TypedThreadSafeFunction<std::nullptr_t, Call, settleInJavaScript>;

}  // namespace

const napi_type_tag CudaClockWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'636c'6b01};
const napi_type_tag CudaPipelineWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'7069'7001};

CudaClockWrap::CudaClockWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] { return std::make_shared<CudaClock>(deviceArg(info[0])); });
}

Napi::Value CudaClockWrap::errorMilliseconds(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), get()->errorMilliseconds());
}

Napi::Function CudaClockWrap::init(Napi::Env env) {
  return DefineClass(env, "CudaClock",
                     {InstanceAccessor<&CudaClockWrap::errorMilliseconds>("errorMilliseconds"),
                      InstanceMethod<&CudaClockWrap::release>("release")});
}

CudaPipelineWrap::CudaPipelineWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] { return parsePipeline(objectArg(info[0], "binding")); });
}

Napi::Value CudaPipelineWrap::routes(const Napi::CallbackInfo &info) {
  const auto pipeline = get();
  const size_t cuts = pipeline->stages().size() - 1;
  Napi::Array routes = Napi::Array::New(info.Env(), cuts);
  for (size_t i = 0; i < cuts; i++) {
    const CudaRoute route = pipeline->route(i);
    routes.Set(static_cast<uint32_t>(i), route == CudaRoute::Local  ? "local"
                                         : route == CudaRoute::Peer ? "peer"
                                                                    : "host");
  }
  return routes;
}

Napi::Value CudaPipelineWrap::run(const Napi::CallbackInfo &info) {
  const Napi::Env env = info.Env();
  const Napi::Object request = objectArg(info[0], "request");
  auto call = std::make_unique<Call>(env);
  call->pipeline = get();
  CudaPipeline &pipeline = *call->pipeline;
  const auto &stages = pipeline.stages();
  CudaPipelineJob &job = call->job;
  const Napi::Array parts = arrayArg(request.Get("stages"), "stages");
  if (parts.Length() != stages.size())
    fail("The pipeline has " + std::to_string(stages.size()) + " stages, not " + std::to_string(parts.Length()));
  job.arena = indexArg(request.Get("arena"), stages[0].arenas.size(), "arena");
  job.isTimed = optionalFlag(request, "isTimed");
  job.skipsAdapters = optionalFlag(request, "skipsAdapters");
  for (uint32_t i = 0; i < parts.Length(); i++) {
    job.stages.push_back(
        parseStageRun(parts.Get(i), stages[i], job.counts, request, "stages[" + std::to_string(i) + "]"));
  }
  job.flight = &pipeline.takeFlight();
  for (uint32_t i = 0; i < parts.Length(); i++) {
    packInputs(*job.stages[i].program, dataOf(job.flight->stages[i].inputs),
               objectArg(parts.Get(i), "stages").Get("inputs"), job.counts);
  }
  for (CudaStageRun &stage : job.stages) stage.place = stage.program->device->takePlace();
  const Napi::Promise promise = call->deferred.Promise();
  Done done = Done::New(env, "tilewright pipeline", 0, 1);
  Call *raw = call.release();
  job.finish = [raw, done]() mutable {
    done.BlockingCall(raw);
    done.Release();
  };
  pipeline.start(raw->job);
  return promise;
}

Napi::Function CudaPipelineWrap::init(Napi::Env env) {
  return DefineClass(
      env, "CudaPipeline",
      {InstanceAccessor<&CudaPipelineWrap::routes>("routes"), InstanceMethod<&CudaPipelineWrap::run>("run"),
       InstanceMethod<&CudaPipelineWrap::release>("release")});
}

}  // namespace tw
