// class Program: checks a binding that comes from JavaScript once, so that a run has nothing left to check but its
// counts.
#include <algorithm>

#include "program.h"

namespace tw {

namespace {

size_t parseSlotIndex(const Program &program, const Napi::Value &value, const std::string &what) {
  return static_cast<size_t>(integerArg(value, what, 0, static_cast<int64_t>(program.slots.size()) - 1));
}

/** Fails where [rows, stride] elements of a slot, the last row `columns` long, reach past its end. */
void requireFits(const Program &program, size_t slot, size_t rows, size_t stride, size_t columns, DType dtype,
                 const std::string &what) {
  if (rows == 0 || columns == 0) return;
  const size_t elements = product(rows - 1, stride, "a buffer") + columns;
  const size_t bytes = product(elements, bytesOf(dtype), "a buffer");
  if (bytes > program.slots[slot].bytes) {
    fail(what + " needs " + std::to_string(bytes) + " bytes at full capacity, its slot has " +
         std::to_string(program.slots[slot].bytes));
  }
}

Write parseWrite(const Program &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  Write write;
  write.slot = parseSlotIndex(program, object.Get("slot"), what + ".slot");
  write.dtype = parseDType(object.Get("dtype"), what + ".dtype");
  if (write.dtype == DType::I32) fail(what + ".dtype must be a floating type");
  write.rows = program.extents.parseExtent(object.Get("rows"), what + ".rows");
  write.columns = program.extents.parseExtent(object.Get("columns"), what + ".columns");
  write.stride = static_cast<size_t>(integerArg(object.Get("stride"), what + ".stride", 1, MAX_EXTENT));
  write.allowsNegativeInfinity = booleanArg(object.Get("allowsNegativeInfinity"), what + ".allowsNegativeInfinity");
  const Counts &most = program.extents.most();
  requireFits(program, write.slot, write.rows.in(most), write.stride, write.columns.in(most), write.dtype, what);
  return write;
}

Port parsePort(const Program &program, const Napi::Value &value, bool isInput, const std::string &what) {
  const Port port = Port::parse(value, program.extents, program.slots.size(), what);
  const Slot &slot = program.slots[port.slot];
  if (isInput && !slot.memory->isWritable()) fail(what + " lies in a mapped file and cannot be written");
  const Counts &most = program.extents.most();
  requireFits(program, port.slot, port.rows.in(most), port.stride, port.stride, port.dtype, what);
  return port;
}

LaunchSpec parseLaunch(const Program &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  LaunchSpec launch;
  launch.name = stringArg(object.Get("name"), what + ".name");
  launch.library = unwrap<LibraryWrap>(object.Get("library"), what + ".library")->get();
  const std::string symbol = stringArg(object.Get("symbol"), what + ".symbol");
  void *address = launch.library->find(symbol);
  if (address == nullptr) fail("No symbol " + symbol + " in " + launch.library->path() + " for " + launch.name);
  static_assert(sizeof(launch.kernel) == sizeof(address), "a function pointer fits a data pointer (POSIX)");
  std::memcpy(&launch.kernel, &address, sizeof(address));
  const Napi::Array slots = arrayArg(object.Get("slots"), what + ".slots");
  for (uint32_t i = 0; i < slots.Length(); i++) {
    const size_t slot = parseSlotIndex(program, slots.Get(i), what + ".slots[" + std::to_string(i) + "]");
    launch.buffers.push_back(program.slots[slot].data());
  }
  launch.isForAdapters = optionalFlag(object, "isForAdapters");
  const Napi::Array writes = arrayArg(object.Get("writes"), what + ".writes");
  for (uint32_t i = 0; i < writes.Length(); i++) {
    launch.writes.push_back(parseWrite(program, writes.Get(i), what + ".writes[" + std::to_string(i) + "]"));
  }
  return launch;
}

std::shared_ptr<Program> parseProgram(const Napi::Object &object) {
  auto program = std::make_shared<Program>();
  program->pool = poolArg(object.Get("pool"), "pool");
  program->extents = Extents::parse(object.Get("extents"), "extents");

  const Napi::Value scratch = object.Get("scratch");
  program->scratchBytes = static_cast<size_t>(integerArg(object.Get("scratchBytes"), "scratchBytes", 0, MAX_EXTENT));
  if (program->scratchBytes > 0) {
    program->scratch = Slot::parse(scratch, "scratch");
    if (program->scratchBytes % 64 != 0 || program->scratch.offset % 64 != 0)
      fail("scratch must be aligned to 64 bytes");
    if (!program->scratch.memory->isWritable()) fail("scratch must be writable");
    const size_t needed = product(program->scratchBytes, static_cast<size_t>(program->pool->threads()), "scratch");
    if (needed > program->scratch.bytes) {
      fail("scratch holds " + std::to_string(program->scratch.bytes) + " bytes, the workers need " +
           std::to_string(needed));
    }
  }

  const Napi::Array slots = arrayArg(object.Get("slots"), "slots");
  for (uint32_t i = 0; i < slots.Length(); i++) {
    program->slots.push_back(Slot::parse(slots.Get(i), "slots[" + std::to_string(i) + "]"));
  }
  const Napi::Array inputs = arrayArg(object.Get("inputs"), "inputs");
  for (uint32_t i = 0; i < inputs.Length(); i++) {
    program->inputs.push_back(parsePort(*program, inputs.Get(i), true, "inputs[" + std::to_string(i) + "]"));
  }
  const Napi::Array outputs = arrayArg(object.Get("outputs"), "outputs");
  for (uint32_t i = 0; i < outputs.Length(); i++) {
    program->outputs.push_back(parsePort(*program, outputs.Get(i), false, "outputs[" + std::to_string(i) + "]"));
  }
  const Napi::Array launches = arrayArg(object.Get("launches"), "launches");
  for (uint32_t i = 0; i < launches.Length(); i++) {
    program->launches.push_back(parseLaunch(*program, launches.Get(i), "launches[" + std::to_string(i) + "]"));
  }
  return program;
}

/** Copies the inputs in, once all are known to be right. */
void copyInputs(const Program &program, const Napi::Value &value, const Counts &counts) {
  const Napi::Array arrays = arrayArg(value, "inputs");
  if (arrays.Length() != program.inputs.size()) {
    fail("The program takes " + std::to_string(program.inputs.size()) + " inputs, not " +
         std::to_string(arrays.Length()));
  }
  std::vector<const uint8_t *> sources;
  for (uint32_t i = 0; i < arrays.Length(); i++) {
    sources.push_back(program.inputs[i].parseData(arrays.Get(i), counts, "inputs[" + std::to_string(i) + "]"));
  }
  for (size_t i = 0; i < sources.size(); i++) {
    const Port &port = program.inputs[i];
    const Slot &slot = program.slots[port.slot];
    port.scatter(slot.data(), sources[i], counts);
    const size_t bytes = port.spanBytes(counts);
    const size_t end = paddedBytes(bytes, slot.bytes);
    if (end > bytes) std::memset(slot.data() + bytes, 0, end - bytes);
  }
}

Napi::Value describe(Napi::Env env, const Program &program, const Counts &counts, const RunResult &result) {
  Napi::Object object = Napi::Object::New(env);
  Napi::Array outputs = Napi::Array::New(env, program.outputs.size());
  for (size_t i = 0; i < program.outputs.size(); i++) {
    const Port &port = program.outputs[i];
    outputs.Set(static_cast<uint32_t>(i), port.gather(env, program.slots[port.slot].data(), counts));
  }
  object.Set("outputs", outputs);
  if (!result.launchNs.empty()) object.Set("launchNs", toFloat64(env, result.launchNs));
  if (!result.isFinite) {
    Napi::Object where = Napi::Object::New(env);
    where.Set("launch", static_cast<double>(result.where.launch));
    where.Set("write", static_cast<double>(result.where.write));
    where.Set("row", static_cast<double>(result.where.row));
    where.Set("column", static_cast<double>(result.where.column));
    object.Set("nonFinite", where);
  }
  return object;
}

}  // namespace

const napi_type_tag ProgramWrap::TAG = {0x7469'6c65'7772'6974, 0x7072'6f67'7261'6d01};

ProgramWrap::ProgramWrap(const Napi::CallbackInfo &info) : ObjectWrap(info) {
  program_ = parseProgram(objectArg(info[0], "binding"));
  info.This().As<Napi::Object>().TypeTag(&TAG);
}

const std::shared_ptr<Program> &ProgramWrap::get() const {
  if (!program_) fail("This program was released already");
  return program_;
}

Napi::Value ProgramWrap::run(const Napi::CallbackInfo &info) {
  const std::shared_ptr<Program> program = get();
  const Napi::Object request = objectArg(info[0], "request");
  const Counts counts = program->extents.parseCounts(request.Get("extents"));
  RunOptions options;
  options.isTimed = optionalFlag(request, "isTimed");
  options.isChecked = optionalFlag(request, "isChecked");
  options.skipsAdapters = optionalFlag(request, "skipsAdapters");
  auto lease = Pool::lease(program->pool);  // from here on no other job touches the slots
  copyInputs(*program, request.Get("inputs"), counts);
  auto result = std::make_shared<RunResult>();
  return PromiseWorker::start(
      info.Env(), [=] { *result = program->run(counts, options); },
      [=](Napi::Env env) { return describe(env, *program, counts, *result); }, std::move(lease));
}

Napi::Value ProgramWrap::timeLaunch(const Napi::CallbackInfo &info) {
  const std::shared_ptr<Program> program = get();
  const Napi::Object request = objectArg(info[0], "request");
  const Counts counts = program->extents.parseCounts(request.Get("extents"));
  if (program->launches.empty()) fail("The program has no launches");
  const auto index = static_cast<size_t>(
      integerArg(request.Get("launch"), "launch", 0, static_cast<int64_t>(program->launches.size()) - 1));
  const auto repeats = static_cast<size_t>(integerArg(request.Get("repeats"), "repeats", 1, 1000000));
  auto lease = Pool::lease(program->pool);
  if (!request.Get("inputs").IsUndefined()) copyInputs(*program, request.Get("inputs"), counts);
  auto seconds = std::make_shared<std::vector<double>>();
  return PromiseWorker::start(
      info.Env(), [=] { *seconds = program->timeLaunch(index, counts, repeats); },
      [=](Napi::Env env) -> Napi::Value { return toFloat64(env, *seconds); }, std::move(lease));
}

void ProgramWrap::release(const Napi::CallbackInfo &) { program_.reset(); }

Napi::Function initProgram(Napi::Env env) {
  return ProgramWrap::DefineClass(env, "Program",
                                  {ProgramWrap::InstanceMethod<&ProgramWrap::run>("run"),
                                   ProgramWrap::InstanceMethod<&ProgramWrap::timeLaunch>("timeLaunch"),
                                   ProgramWrap::InstanceMethod<&ProgramWrap::release>("release")});
}

}  // namespace tw
