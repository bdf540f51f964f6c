// A program's binding from JavaScript, checked once: slots, tensor maps, grids, kernels, the copies of its inputs.
#include <algorithm>

#include "cudaBinding.h"

namespace tw {
namespace {

constexpr uint32_t MAX_SLOTS = 1 << 20;
constexpr uint32_t MAX_POINTERS = 128;
constexpr uint32_t MAX_MAPS = 16;
/** Bytes of a kernel's parameters that every driver takes. */
constexpr size_t PARAMETER_BYTES = 4096;
/* Every device with clusters runs such ones. */
constexpr unsigned PORTABLE_CLUSTER = 8;
constexpr size_t LARGEST_GRID_X = 2147483647;
constexpr size_t LARGEST_GRID_Y = 65535;
constexpr size_t ALIGNMENT = 16;  // of slots: kernels load 16 bytes at a time, tensor maps start at multiples of it
constexpr size_t COPY_GAP = 256;

CudaSlot parseSlot(const CudaProgram &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  CudaSlot slot;
  slot.memory = cudaArg<CudaMemoryWrap>(object.Get("memory"), what + ".memory");
  requireDevice(*program.device, *slot.memory->device(), what + ".memory");
  slot.offset = sizeArg(object.Get("offset"), what + ".offset");
  slot.bytes = sizeArg(object.Get("bytes"), what + ".bytes");
  slot.memory->requireInside(slot.offset, slot.bytes, what);
  if (slot.offset % ALIGNMENT != 0) fail(what + ".offset must be a multiple of " + std::to_string(ALIGNMENT));
  return slot;
}

CudaGridExtent parseGrid(const CudaProgram &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  const std::string kind = stringArg(object.Get("kind"), what + ".kind");
  CudaGridExtent grid;
  if (kind == "constant") {
    grid.count = extentArg(object.Get("count"), what + ".count", 0, static_cast<int64_t>(LARGEST_GRID_X));
    return grid;
  }
  if (kind != "tiles" && kind != "persistent") fail(what + ".kind must be constant, tiles or persistent, not " + kind);
  grid.kind = kind == "tiles" ? CudaGridExtent::Kind::Tiles : CudaGridExtent::Kind::Persistent;
  grid.extent = program.extents.parseExtent(object.Get("extent"), what + ".extent");
  grid.per = extentArg(object.Get("per"), what + ".per", 1, MAX_EXTENT);
  grid.times = extentArg(object.Get("times"), what + ".times", 1, MAX_EXTENT);
  if (kind == "persistent") {
    grid.blocksPerMultiprocessor =
        extentArg(object.Get("blocksPerMultiprocessor"), what + ".blocksPerMultiprocessor", 1, 32);
  }
  return grid;
}

/** Every grid of a program's micro-batches is a part of the largest, and whole clusters. */
void requireGrid(const CudaProgram &program, const CudaLaunchSpec &launch, const std::string &what) {
  const auto multiprocessors = static_cast<size_t>(program.device->info().multiprocessors);
  const size_t x = launch.gridX.resolve(program.extents.most(), multiprocessors, launch.cluster);
  const size_t y = launch.gridY.resolve(program.extents.most(), multiprocessors, 1);
  if (x > LARGEST_GRID_X || y > LARGEST_GRID_Y) {
    fail(what + ": a grid of " + std::to_string(x) + " × " + std::to_string(y) +
         " blocks is larger than a launch may have");
  }
  if (launch.cluster == 1) return;
  const bool isWhole = launch.gridX.kind == CudaGridExtent::Kind::Persistent ||
                       (launch.gridX.kind == CudaGridExtent::Kind::Constant ? launch.gridX.count : launch.gridX.times) %
                               launch.cluster ==
                           0;
  if (!isWhole) fail(what + ".gridX is not always a whole number of clusters of " + std::to_string(launch.cluster));
}

CuTensorMap parseMap(const CudaProgram &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  const CudaSlot &slot = program.slots[indexArg(object.Get("slot"), program.slots.size(), what + ".slot")];
  const std::string dtype = stringArg(object.Get("dtype"), what + ".dtype");
  if (dtype != "f16" && dtype != "bf16" && dtype != "f32" && dtype != "u8")
    fail(what + ".dtype must be f16, bf16, f32 or u8, not " + dtype);
  const CuTensorMapDataType type = dtype == "f32"   ? CuTensorMapDataType::F32
                                   : dtype == "f16" ? CuTensorMapDataType::F16
                                   : dtype == "u8"  ? CuTensorMapDataType::U8
                                                    : CuTensorMapDataType::BF16;
  const size_t elementBytes = dtype == "f32" ? 4 : dtype == "u8" ? 1 : 2;
  const size_t rows = program.extents.parseExtent(object.Get("rows"), what + ".rows").in(program.extents.most());
  if (rows == 0) fail(what + ".rows must not be 0");
  const size_t columns = extentArg(object.Get("columns"), what + ".columns", 1, MAX_EXTENT);
  const size_t stride = extentArg(object.Get("stride"), what + ".stride", static_cast<int64_t>(columns), MAX_EXTENT);
  const size_t boxRows = extentArg(object.Get("boxRows"), what + ".boxRows", 1, 256);
  const size_t boxColumns = extentArg(object.Get("boxColumns"), what + ".boxColumns", 1, 256);
  const auto swizzle = extentArg(object.Get("swizzle"), what + ".swizzle", 0, 128);
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    fail(what + ".swizzle must be 0, 32, 64 or 128");
  if (stride * elementBytes % 16 != 0) fail(what + ".stride must be a multiple of 16 bytes");
  if (boxColumns * elementBytes % 16 != 0) fail(what + ".boxColumns must be a multiple of 16 bytes");
  if (swizzle != 0 && boxColumns * elementBytes > swizzle) fail(what + ".boxColumns is wider than the swizzle pattern");
  const size_t bytes = product(product(rows - 1, stride, "a tensor map") + columns, elementBytes, "a tensor map");
  if (bytes > slot.bytes) {
    fail(what + " shows " + std::to_string(bytes) + " bytes, its slot has " + std::to_string(slot.bytes));
  }
  const uint64_t sizes[] = {columns, rows};
  const uint64_t strides[] = {stride * elementBytes};
  const uint32_t box[] = {static_cast<uint32_t>(boxColumns), static_cast<uint32_t>(boxRows)};
  const uint32_t steps[] = {1, 1};
  const CuTensorMapSwizzle pattern = swizzle == 0    ? CuTensorMapSwizzle::None
                                     : swizzle == 32 ? CuTensorMapSwizzle::B32
                                     : swizzle == 64 ? CuTensorMapSwizzle::B64
                                                     : CuTensorMapSwizzle::B128;
  CuTensorMap map{};
  program.device->use().cuTensorMapEncodeTiled(&map, type, 2, reinterpret_cast<void *>(slot.address()), sizes, strides,
                                               box, steps, CuTensorMapInterleave::None, pattern,
                                               CuTensorMapL2Promotion::L2B256, CuTensorMapFill::Zeros);
  return map;
}

/** The ints that a kernel takes before its pointers: by default all extents, in order. */
std::vector<Extent> parseSizes(const CudaProgram &program, const Napi::Value &value, const std::string &what) {
  std::vector<Extent> sizes;
  if (value.IsUndefined()) {
    for (size_t i = 0; i < program.extents.size(); i++) sizes.push_back(Extent::of(i));
    return sizes;
  }
  const Napi::Array array = arrayArg(value, what);
  for (uint32_t i = 0; i < boundedLength(array, TW_MAX_EXTENTS, what); i++) {
    const std::string entry = what + "[" + std::to_string(i) + "]";
    sizes.push_back(program.extents.parseExtent(array.Get(i), entry));
    if (sizes.back().in(program.extents.most()) > INT32_MAX) fail(entry + " is no int");
  }
  return sizes;
}

CudaLaunchSpec parseLaunch(const CudaProgram &program, const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  CudaLaunchSpec launch;
  launch.name = stringArg(object.Get("name"), what + ".name");
  launch.module = cudaArg<CudaModuleWrap>(object.Get("module"), what + ".module");
  requireDevice(*program.device, *launch.module->device(), what + ".module");
  CudaFunction &function = launch.module->function(stringArg(object.Get("symbol"), what + ".symbol"));
  launch.function = function.handle;

  launch.sizes = parseSizes(program, object.Get("sizes"), what + ".sizes");
  std::vector<size_t> sizes(launch.sizes.size(), sizeof(int32_t));
  const Napi::Array slots = arrayArg(object.Get("slots"), what + ".slots");
  for (uint32_t i = 0; i < boundedLength(slots, MAX_POINTERS, what + ".slots"); i++) {
    const size_t slot = indexArg(slots.Get(i), program.slots.size(), what + ".slots[" + std::to_string(i) + "]");
    launch.pointers.push_back(program.slots[slot].address());
    sizes.push_back(sizeof(CuAddress));
  }
  const Napi::Array maps = arrayArg(object.Get("tensorMaps"), what + ".tensorMaps");
  for (uint32_t i = 0; i < boundedLength(maps, MAX_MAPS, what + ".tensorMaps"); i++) {
    launch.maps.push_back(parseMap(program, maps.Get(i), what + ".tensorMaps[" + std::to_string(i) + "]"));
    sizes.push_back(sizeof(CuTensorMap));
  }
  if (roundUp(4 * launch.sizes.size() + 8 * launch.pointers.size() + 4, 64) + 128 * launch.maps.size() >
      PARAMETER_BYTES)
    fail(what + " has too many parameters");
  launch.module->requireParameters(function, sizes);

  const Napi::Object shape = objectArg(object.Get("launch"), what + ".launch");
  launch.threads = static_cast<unsigned>(integerArg(shape.Get("threads"), what + ".launch.threads", 1, 1024));
  if (static_cast<int>(launch.threads) > function.info.maxThreads) {
    fail(what + ": " + function.symbol + " runs with at most " + std::to_string(function.info.maxThreads) +
         " threads a block, not " + std::to_string(launch.threads));
  }
  launch.sharedBytes =
      static_cast<unsigned>(integerArg(shape.Get("sharedBytes"), what + ".launch.sharedBytes", 0, INT32_MAX));
  launch.module->allowShared(function, launch.sharedBytes);
  launch.cluster = static_cast<unsigned>(integerArg(shape.Get("cluster"), what + ".launch.cluster", 1, 16));
  if (launch.cluster > PORTABLE_CLUSTER) launch.module->allowLargeClusters(function);
  launch.gridX = parseGrid(program, shape.Get("gridX"), what + ".launch.gridX");
  launch.gridY = parseGrid(program, shape.Get("gridY"), what + ".launch.gridY");
  if (launch.gridY.kind == CudaGridExtent::Kind::Persistent) fail(what + ".launch.gridY cannot be persistent");
  requireGrid(program, launch, what + ".launch");
  launch.isForAdapters = optionalFlag(object, "isForAdapters");
  launch.isProgrammatic = booleanArg(object.Get("usesProgrammaticLaunch"), what + ".usesProgrammaticLaunch");
  return launch;
}

/** Places a port in a pinned area of `areaBytes` so far. */
CudaPort parsePort(const CudaProgram &program, const Napi::Value &value, size_t &areaBytes, const std::string &what) {
  CudaPort port{Port::parse(value, program.extents, program.slots.size(), what), 0, 0};
  const size_t bytes = port.spanBytes(program.extents.most());
  const CudaSlot &slot = program.slots[port.slot];
  if (bytes > slot.bytes) {
    fail(what + " needs " + std::to_string(bytes) + " bytes at full capacity, its slot has " +
         std::to_string(slot.bytes));
  }
  port.pinnedBytes = paddedBytes(bytes, slot.bytes);
  port.pinnedOffset = areaBytes;
  areaBytes = roundUp(areaBytes + port.pinnedBytes, 256);
  return port;
}

/** Moves the inputs in the pinned area so that neighbours on the device are neighbours there, and plans the copies. */
void planInputCopies(CudaProgram &program) {
  std::vector<CudaPort *> order;
  for (CudaPort &port : program.inputs) order.push_back(&port);
  const auto address = [&](const CudaPort *port) { return program.slots[port->slot].address(); };
  std::sort(order.begin(), order.end(), [&](const CudaPort *a, const CudaPort *b) { return address(a) < address(b); });
  size_t areaBytes = 0;
  for (size_t i = 0; i < order.size(); i++) {
    CudaPort &port = *order[i];
    if (port.pinnedBytes == 0) continue;
    const auto number = static_cast<size_t>(&port - program.inputs.data());
    const bool isFirst = program.inputCopies.empty();
    const CuAddress end = isFirst ? 0 : program.inputCopies.back().target + program.inputCopies.back().bytes;
    if (!isFirst && address(&port) < end) fail("Two inputs share device memory");
    const bool isNeighbour = !isFirst && program.slots[order[i - 1]->slot].memory == program.slots[port.slot].memory &&
                             address(&port) - end < COPY_GAP;
    if (isNeighbour) {
      CudaInputCopy &copy = program.inputCopies.back();
      port.pinnedOffset = copy.pinnedOffset + (address(&port) - copy.target);
      copy.bytes = address(&port) + port.pinnedBytes - copy.target;
      copy.inputs.push_back(number);
    } else {
      port.pinnedOffset = roundUp(areaBytes, 256);
      program.inputCopies.push_back({address(&port), port.pinnedOffset, port.pinnedBytes, {number}});
    }
    areaBytes = port.pinnedOffset + port.pinnedBytes;
  }
  program.inputBytes = areaBytes;
  size_t next = areaBytes;
  for (auto port = order.rbegin(); port != order.rend(); ++port) {
    if ((*port)->pinnedBytes == 0) continue;
    (*port)->roomBytes = next - (*port)->pinnedOffset;
    next = (*port)->pinnedOffset;
  }
}

}  // namespace

std::shared_ptr<CudaProgram> parseCudaProgram(const Napi::Object &object) {
  auto program = std::make_shared<CudaProgram>();
  program->device = cudaArg<CudaDeviceWrap>(object.Get("device"), "device");
  program->extents = Extents::parse(object.Get("extents"), "extents");
  const Napi::Array slots = arrayArg(object.Get("slots"), "slots");
  for (uint32_t i = 0; i < boundedLength(slots, MAX_SLOTS, "slots"); i++) {
    program->slots.push_back(parseSlot(*program, slots.Get(i), "slots[" + std::to_string(i) + "]"));
  }
  const Napi::Array inputs = arrayArg(object.Get("inputs"), "inputs");
  for (uint32_t i = 0; i < boundedLength(inputs, 64, "inputs"); i++) {
    program->inputs.push_back(
        parsePort(*program, inputs.Get(i), program->inputBytes, "inputs[" + std::to_string(i) + "]"));
  }
  planInputCopies(*program);
  const Napi::Array outputs = arrayArg(object.Get("outputs"), "outputs");
  for (uint32_t i = 0; i < boundedLength(outputs, 64, "outputs"); i++) {
    program->outputs.push_back(
        parsePort(*program, outputs.Get(i), program->outputBytes, "outputs[" + std::to_string(i) + "]"));
  }
  const Napi::Array launches = arrayArg(object.Get("launches"), "launches");
  for (uint32_t i = 0; i < boundedLength(launches, MAX_CUDA_LAUNCHES, "launches"); i++) {
    program->launches.push_back(parseLaunch(*program, launches.Get(i), "launches[" + std::to_string(i) + "]"));
  }
  const Napi::Value clock = object.Get("clock");
  if (!clock.IsUndefined()) {
    program->clock = cudaArg<CudaClockWrap>(clock, "clock");
    requireDevice(*program->device, *program->clock->device(), "clock");
  }
  const Napi::Value isPiped = object.Get("isPiped");
  if (isPiped.IsUndefined() || !booleanArg(isPiped, "isPiped")) program->allocateAreas();
  return program;
}

}  // namespace tw
