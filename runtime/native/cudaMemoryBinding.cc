// JavaScript's side of device memory: checks arguments.
#include "cudaBinding.h"
#include "cudaShare.h"

namespace tw {
namespace {

/**
 * An array's bytes, and the array kept from being collected until the last copy of this goes, on the JavaScript thread.
 */
struct HeldBytes {
  std::shared_ptr<Napi::ObjectReference> reference;
  uint8_t *data = nullptr;
  size_t bytes = 0;
};

HeldBytes holdBytes(const Napi::Value &value) {
  if (!value.IsTypedArray()) fail("write takes a typed array");
  const auto array = value.As<Napi::TypedArray>();
  HeldBytes held;
  held.reference = std::make_shared<Napi::ObjectReference>(Napi::Persistent(value.As<Napi::Object>()));
  held.data = static_cast<uint8_t *>(array.ArrayBuffer().Data()) + array.ByteOffset();
  held.bytes = array.ByteLength();
  return held;
}

void copyIn(const CudaMemory &memory, const CudaApi &api, size_t offset, const uint8_t *data, size_t bytes) {
  if (bytes == 0) return;
  const CuStream stream = memory.device()->stream();
  api.cuMemcpyHtoDAsync(memory.address() + offset, data, bytes, stream);
  api.cuStreamSynchronize(stream);
}

void copyOut(const CudaMemory &memory, const CudaApi &api, size_t offset, uint8_t *data, size_t bytes) {
  if (bytes == 0) return;
  const CuStream stream = memory.device()->stream();
  api.cuMemcpyDtoHAsync(data, memory.address() + offset, bytes, stream);
  api.cuStreamSynchronize(stream);
}

/** Runs `body` off the JavaScript thread when the device's turn has come that is taken now. */
Napi::Promise inTurnLater(Napi::Env env, const std::shared_ptr<CudaDevice> &device,
                          std::function<void(const CudaApi &)> body, PromiseWorker::Finish finish) {
  auto place = device->takePlace();
  return PromiseWorker::start(
      env,
      [device, place, body = std::move(body)] {
        const Leaver leaver(*place);
        place->wait();
        body(device->use());
      },
      std::move(finish), place);
}

}  // namespace

const napi_type_tag CudaMemoryWrap::TAG = {0x7469'6c65'7772'6974, 0x6375'6461'6d65'6d01};

CudaMemoryWrap::CudaMemoryWrap(const Napi::CallbackInfo &info) : CudaHandle(info) {
  hold(info, [&] {
    const size_t bytes = sizeArg(info[1], "bytes");
    if (info[2].IsUndefined()) return std::make_shared<CudaMemory>(deviceArg(info[0]), bytes);
    return std::make_shared<CudaMemory>(deviceArg(info[0]), bytes, sizeArg(info[2], "most"));
  });
}

Napi::Value CudaMemoryWrap::sizeBytes(const Napi::CallbackInfo &info) { return numberOf(info.Env(), get()->size()); }

Napi::Value CudaMemoryWrap::address(const Napi::CallbackInfo &info) {
  return Napi::BigInt::New(info.Env(), get()->address());
}

void CudaMemoryWrap::write(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] {
    const auto memory = get();
    const size_t offset = sizeArg(info[0], "offset");
    const HeldBytes source = holdBytes(info[1]);
    memory->requireUsable(offset, source.bytes, "write");
    memory->device()->inTurn([&](const CudaApi &api) { copyIn(*memory, api, offset, source.data, source.bytes); });
  });
}

Napi::Value CudaMemoryWrap::read(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    const auto memory = get();
    const size_t offset = sizeArg(info[0], "offset");
    const size_t bytes = sizeArg(info[1], "bytes");
    memory->requireUsable(offset, bytes, "read");
    const auto target = Napi::ArrayBuffer::New(info.Env(), bytes);
    auto *data = static_cast<uint8_t *>(const_cast<Napi::ArrayBuffer &>(target).Data());
    memory->device()->inTurn([&](const CudaApi &api) { copyOut(*memory, api, offset, data, bytes); });
    return target;
  });
}

Napi::Value CudaMemoryWrap::writeAsync(const Napi::CallbackInfo &info) {
  const auto memory = get();
  const size_t offset = sizeArg(info[0], "offset");
  const HeldBytes source = holdBytes(info[1]);
  memory->requireUsable(offset, source.bytes, "writeAsync");
  return inTurnLater(
      info.Env(), memory->device(),
      [=](const CudaApi &api) { copyIn(*memory, api, offset, source.data, source.bytes); },
      [source](Napi::Env env) { return env.Undefined(); });
}

Napi::Value CudaMemoryWrap::readAsync(const Napi::CallbackInfo &info) {
  const auto memory = get();
  const size_t offset = sizeArg(info[0], "offset");
  const size_t bytes = sizeArg(info[1], "bytes");
  memory->requireUsable(offset, bytes, "readAsync");
  auto buffer = Napi::ArrayBuffer::New(info.Env(), bytes);
  auto *data = static_cast<uint8_t *>(buffer.Data());
  auto reference = std::make_shared<Napi::ObjectReference>(Napi::Persistent(buffer.As<Napi::Object>()));
  return inTurnLater(
      info.Env(), memory->device(), [=](const CudaApi &api) { copyOut(*memory, api, offset, data, bytes); },
      [reference](Napi::Env) -> Napi::Value { return reference->Value(); });
}

Napi::Value CudaMemoryWrap::writeBeside(const Napi::CallbackInfo &info) {
  struct Part {
    size_t offset;
    HeldBytes source;
  };
  const auto memory = get();
  const Napi::Array writes = arrayArg(info[0], "writes");
  auto parts = std::make_shared<std::vector<Part>>();
  for (uint32_t i = 0; i < writes.Length(); i++) {
    const std::string what = "writes[" + std::to_string(i) + "]";
    const Napi::Object write = objectArg(writes.Get(i), what);
    const Part part = {sizeArg(write.Get("offset"), what + ".offset"), holdBytes(write.Get("data"))};
    memory->requireUsable(part.offset, part.source.bytes, what);
    if (part.source.bytes > 0) parts->push_back(part);
  }
  auto place = memory->device()->takePlace();
  return PromiseWorker::start(
      info.Env(),
      [memory, parts, place] {
        const Leaver leaver(*place);
        place->wait();
        const auto &device = memory->device();
        const CudaApi &api = device->use();
        const CudaEvent before(device, false);
        before.record(device->stream());
        place->leave();
        before.wait();
        const CudaStream stream(device);
        for (const Part &part : *parts)
          api.cuMemcpyHtoDAsync(memory->address() + part.offset, part.source.data, part.source.bytes, stream.get());
        api.cuStreamSynchronize(stream.get());
      },
      [parts](Napi::Env env) {
        parts->clear();
        return env.Undefined();
      },
      place);
}

void CudaMemoryWrap::fill(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] {
    const auto memory = get();
    const auto byte = static_cast<unsigned char>(integerArg(info[0], "byte", 0, 255));
    const size_t offset = info[1].IsUndefined() ? 0 : sizeArg(info[1], "offset");
    const size_t bytes =
        info[2].IsUndefined() ? memory->size() - std::min(offset, memory->size()) : sizeArg(info[2], "bytes");
    memory->requireUsable(offset, bytes, "fill");
    if (bytes == 0) return;
    memory->device()->inTurn([&](const CudaApi &api) {
      api.cuMemsetD8Async(memory->address() + offset, byte, bytes, memory->device()->stream());
    });
  });
}

void CudaMemoryWrap::copyFrom(const Napi::CallbackInfo &info) {
  coded(info.Env(), [&] {
    const auto memory = get();
    const size_t offset = sizeArg(info[0], "offset");
    const auto source = cudaArg<CudaMemoryWrap>(info[1], "source");
    const size_t sourceOffset = sizeArg(info[2], "sourceOffset");
    const size_t bytes = sizeArg(info[3], "bytes");
    requireDevice(*memory->device(), *source->device(), "source");
    memory->requireUsable(offset, bytes, "copyFrom, target");
    source->requireUsable(sourceOffset, bytes, "copyFrom, source");
    if (bytes == 0) return;
    memory->device()->inTurn([&](const CudaApi &api) {
      api.cuMemcpyDtoDAsync(memory->address() + offset, source->address() + sourceOffset, bytes,
                            memory->device()->stream());
    });
  });
}

Napi::Value CudaMemoryWrap::map(const Napi::CallbackInfo &info) {
  const auto memory = get();
  const size_t bytes = sizeArg(info[0], "bytes");
  memory->requireInside(0, bytes, "map");
  CudaReserved &reserved = memory->reserved();
  const auto usable = [memory](Napi::Env env) -> Napi::Value { return numberOf(env, memory->usable()); };
  if (bytes >= memory->usable())
    return PromiseWorker::start(info.Env(), [memory, bytes, &reserved] { reserved.map(bytes); }, usable, nullptr);
  // Whatever was enqueued before this call may still use what goes: its end is an event behind it on the stream.
  auto place = memory->device()->takePlace();
  return PromiseWorker::start(
      info.Env(),
      [memory, bytes, &reserved, place] {
        const Leaver leaver(*place);
        place->wait();
        const CudaEvent end(memory->device(), false);
        end.record(memory->device()->stream());
        place->leave();
        end.wait();
        reserved.unmap(bytes);
      },
      usable, place);
}

Napi::Value CudaMemoryWrap::usableBytes(const Napi::CallbackInfo &info) {
  return numberOf(info.Env(), get()->usable());
}

Napi::Value CudaMemoryWrap::share(const Napi::CallbackInfo &info) {
  return coded(info.Env(), [&] {
    const CudaSharedHandle shared = shareMemory(*get());
    Napi::Uint8Array handle = Napi::Uint8Array::New(info.Env(), sizeof shared.handle.bytes);
    std::memcpy(handle.Data(), shared.handle.bytes, sizeof shared.handle.bytes);
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("handle", handle);
    object.Set("offset", numberOf(info.Env(), shared.offset));
    return object;
  });
}

Napi::Value CudaMemoryWrap::copyFromProcess(const Napi::CallbackInfo &info) {
  const auto memory = get();
  const size_t offset = sizeArg(info[0], "offset");
  const Napi::Object source = objectArg(info[1], "source");
  const auto [data, length] = typedArg<uint8_t>(source.Get("handle"), "source.handle", napi_uint8_array);
  CudaSharedHandle shared;
  if (length != sizeof shared.handle.bytes)
    fail("source.handle has " + std::to_string(length) + " bytes, not " + std::to_string(sizeof shared.handle.bytes));
  std::memcpy(shared.handle.bytes, data, length);
  shared.offset = sizeArg(source.Get("offset"), "source.offset");
  const size_t sourceOffset = sizeArg(info[2], "sourceOffset");
  const size_t bytes = sizeArg(info[3], "bytes");
  memory->requireUsable(offset, bytes, "copyFromProcess");
  auto times = std::make_shared<CudaShareTimes>();
  return PromiseWorker::start(
      info.Env(), [=] { *times = tw::copyFromProcess(*memory, offset, shared, sourceOffset, bytes); },
      [times](Napi::Env env) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("opening", times->opening);
        object.Set("copying", times->copying);
        return object;
      },
      nullptr);
}

Napi::Function CudaMemoryWrap::init(Napi::Env env) {
  return DefineClass(
      env, "CudaMemory",
      {InstanceAccessor<&CudaMemoryWrap::sizeBytes>("sizeBytes"), InstanceAccessor<&CudaMemoryWrap::address>("address"),
       InstanceMethod<&CudaMemoryWrap::write>("write"), InstanceMethod<&CudaMemoryWrap::read>("read"),
       InstanceMethod<&CudaMemoryWrap::writeAsync>("writeAsync"),
       InstanceMethod<&CudaMemoryWrap::writeBeside>("writeBeside"),
       InstanceMethod<&CudaMemoryWrap::readAsync>("readAsync"), InstanceMethod<&CudaMemoryWrap::fill>("fill"),
       InstanceMethod<&CudaMemoryWrap::copyFrom>("copyFrom"), InstanceMethod<&CudaMemoryWrap::share>("share"),
       InstanceMethod<&CudaMemoryWrap::map>("map"), InstanceAccessor<&CudaMemoryWrap::usableBytes>("usableBytes"),
       InstanceMethod<&CudaMemoryWrap::copyFromProcess>("copyFromProcess"),
       InstanceMethod<&CudaMemoryWrap::release>("release")});
}

}  // namespace tw
