#include "cudaProgram.h"

namespace tw {

size_t CudaGridExtent::resolve(const Counts &counts, size_t multiprocessors, size_t cluster) const {
  if (kind == Kind::Constant) return count;
  const size_t size = extent.in(counts);
  const size_t tiles = (size + per - 1) / per * times;
  if (kind == Kind::Tiles || tiles == 0) return tiles;
  const size_t blocks = std::min(tiles, multiprocessors * blocksPerMultiprocessor) / cluster * cluster;
  return std::max(blocks, cluster);
}

void CudaProgram::allocateAreas() {
  pinned = PinnedPool::of(device);
  for (size_t i = 0; i < AREAS; i++) {
    auto area = std::make_unique<CudaArea>();
    area->begin = std::make_unique<CudaEvent>(device, true);
    area->end = std::make_unique<CudaEvent>(device, true);
    areas.push_back(std::move(area));
  }
}

std::shared_ptr<CudaArea> CudaProgram::takeArea(const std::shared_ptr<CudaProgram> &self) {
  if (areas.empty()) fail("This program runs in a pipeline only");
  for (const auto &area : areas) {
    if (area->isTaken.exchange(true)) continue;
    std::shared_ptr<CudaArea> own(area.get(), [self](CudaArea *taken) {
      taken->inputs.reset();
      taken->outputs.reset();
      taken->isTaken.store(false);
    });
    if (inputBytes > 0) area->inputs = PinnedPool::take(pinned, inputBytes);
    if (outputBytes > 0) area->outputs = PinnedPool::take(pinned, outputBytes);
    return own;
  }
  fail("Two micro-batches of this program are in flight already: wait for one");
}

void CudaProgram::copyInputs(const CudaApi &api, const PinnedMemory &from, const Counts &counts,
                             CuStream stream) const {
  for (const CudaInputCopy &copy : inputCopies) {
    size_t begin = 0;
    size_t end = 0;
    const auto enqueueCopy = [&] {
      if (end > begin)
        api.cuMemcpyHtoDAsync(copy.target + begin, from.data() + copy.pinnedOffset + begin, end - begin, stream);
    };
    for (const size_t input : copy.inputs) {
      const CudaPort &port = inputs[input];
      const size_t bytes = paddedBytes(port.spanBytes(counts), port.pinnedBytes);
      const size_t offset = port.pinnedOffset - copy.pinnedOffset;
      if (bytes == 0) continue;
      if (end == begin || offset - end > MAX_COPIED_GAP) {
        enqueueCopy();
        begin = offset;
      }
      end = offset + bytes;
    }
    enqueueCopy();
  }
}

void CudaProgram::enqueue(const CudaApi &api, const CudaLaunchSpec &launch, const Counts &counts,
                          bool mayOverlap) const {
  const auto multiprocessors = static_cast<size_t>(device->info().multiprocessors);
  const size_t gridX = launch.gridX.resolve(counts, multiprocessors, launch.cluster);
  const size_t gridY = launch.gridY.resolve(counts, multiprocessors, 1);
  if (gridX == 0 || gridY == 0) return;

  std::array<int32_t, TW_MAX_EXTENTS> sizes{};
  // The driver copies the values before it returns; it writes none of them.
  std::vector<void *> arguments;
  arguments.reserve(launch.sizes.size() + launch.pointers.size() + launch.maps.size());
  for (size_t i = 0; i < launch.sizes.size(); i++) {
    sizes[i] = static_cast<int32_t>(launch.sizes[i].in(counts));
    arguments.push_back(&sizes[i]);
  }
  for (const CuAddress &pointer : launch.pointers) arguments.push_back(const_cast<CuAddress *>(&pointer));
  for (const CuTensorMap &map : launch.maps) arguments.push_back(const_cast<CuTensorMap *>(&map));

  CuLaunchAttribute attributes[2] = {};
  CuLaunchConfig config{};
  config.gridX = static_cast<unsigned>(gridX);
  config.gridY = static_cast<unsigned>(gridY);
  config.gridZ = 1;
  config.blockX = launch.threads;
  config.blockY = config.blockZ = 1;
  config.sharedBytes = launch.sharedBytes;
  config.stream = device->stream();
  config.attributes = attributes;
  if (launch.cluster > 1) {
    CuLaunchAttribute &attribute = attributes[config.attributeCount++];
    attribute.id = CuLaunchAttributeId::ClusterDimension;
    attribute.value.clusterDimension = {launch.cluster, 1, 1};
  }
  if (launch.isProgrammatic && mayOverlap) {
    CuLaunchAttribute &attribute = attributes[config.attributeCount++];
    attribute.id = CuLaunchAttributeId::ProgrammaticStreamSerialization;
    attribute.value.isProgrammaticAllowed = 1;
  }
  const CuResult result = api.cuLaunchKernelEx.raw(&config, launch.function, arguments.data(), nullptr);
  if (result != CU_SUCCESS) {
    api.fail(result, "cuLaunchKernelEx",
             "in " + launch.name + ": " + std::to_string(gridX) + " × " + std::to_string(gridY) + " blocks of " +
                 std::to_string(launch.threads) + " threads and " + std::to_string(launch.sharedBytes) +
                 " bytes of shared memory, clusters of " + std::to_string(launch.cluster));
  }
}

void CudaProgram::enqueueLaunches(const CudaApi &api, size_t first, size_t end, const Counts &counts) const {
  for (size_t i = first; i < end; i++) enqueue(api, launches[i], counts);
}

namespace {

/**
 * Runs the body in its turn and lets the next in at the latest when it is over: the JavaScript thread may be waiting.
 * After an error the stream is waited for, since it may still use the area that is given up.
 */
template <typename Body>
void inTurn(const CudaDevice &device, Turnstile::Place &place, Body &&body) {
  place.wait();
  try {
    body();
  } catch (...) {
    device.useQuietly().cuStreamSynchronize.raw(device.stream());
    place.leave();
    throw;
  }
  place.leave();
}

}  // namespace

CudaRunResult CudaProgram::run(CudaArea &area, Turnstile::Place &place, const Counts &counts,
                               const CudaRunOptions &options) {
  CudaRunResult result;
  inTurn(*device, place, [&] {
    const CudaApi &api = device->use();
    const CuStream stream = device->stream();
    while (options.isTimed && area.marks.size() <= launches.size())
      area.marks.push_back(std::make_unique<CudaEvent>(device, true));
    area.begin->record(stream);
    if (options.first == 0 && inputBytes > 0) copyInputs(api, *area.inputs, counts, stream);
    if (options.isTimed) area.marks[options.first]->record(stream);
    for (size_t i = options.first; i < options.end; i++) {
      if (!options.skipsAdapters || !launches[i].isForAdapters) enqueue(api, launches[i], counts);
      if (options.isTimed) area.marks[i + 1]->record(stream);
      if (options.isSynchronous) {
        const CuResult outcome = api.cuStreamSynchronize.raw(stream);
        if (outcome != CU_SUCCESS)
          api.fail(outcome, "cuStreamSynchronize", "after launch " + std::to_string(i) + ", " + launches[i].name);
      }
    }
    for (const CudaPort &port : outputs) {
      const size_t bytes = port.spanBytes(counts);
      if (bytes > 0)
        api.cuMemcpyDtoHAsync(area.outputs->data() + port.pinnedOffset, slots[port.slot].address(), bytes, stream);
    }
    area.end->record(stream);
    place.leave();
    area.end->wait();
    result.milliseconds = area.end->millisecondsSince(*area.begin);
    if (clock) {
      result.begin = clock->at(*area.begin);
      result.end = clock->at(*area.end);
    }
    for (size_t i = options.first; options.isTimed && i < options.end; i++) {
      result.launchMilliseconds.push_back(area.marks[i + 1]->millisecondsSince(*area.marks[i]));
    }
  });
  return result;
}

std::vector<double> CudaProgram::time(CudaArea &area, Turnstile::Place &place, const Counts &counts, bool hasInputs,
                                      const CudaTimeOptions &options) {
  std::vector<double> milliseconds;
  inTurn(*device, place, [&] {
    const CudaApi &api = device->use();
    const CuStream stream = device->stream();
    std::unique_ptr<CudaMemory> flushed;
    if (options.flushBytes > 0) flushed = std::make_unique<CudaMemory>(device, options.flushBytes);
    std::vector<std::unique_ptr<CudaEvent>> begins;
    std::vector<std::unique_ptr<CudaEvent>> ends;
    for (size_t i = 0; i < options.repeats; i++) {
      begins.push_back(std::make_unique<CudaEvent>(device, true));
      ends.push_back(std::make_unique<CudaEvent>(device, true));
    }
    if (hasInputs && inputBytes > 0) copyInputs(api, *area.inputs, counts, stream);
    size_t next = 0;
    for (size_t sample = 0; sample < options.warmup + options.repeats; sample++) {
      const bool isCounted = sample >= options.warmup;
      if (flushed) api.cuMemsetD8Async(flushed->address(), static_cast<unsigned char>(sample), flushed->size(), stream);
      if (isCounted) begins[sample - options.warmup]->record(stream);
      for (size_t i = 0; i < options.perSample; i++) {
        enqueue(api, launches[options.launches[next++ % options.launches.size()]], counts);
      }
      if (isCounted) ends[sample - options.warmup]->record(stream);
    }
    api.cuStreamSynchronize(stream);
    for (size_t i = 0; i < options.repeats; i++) milliseconds.push_back(ends[i]->millisecondsSince(*begins[i]));
  });
  return milliseconds;
}

}  // namespace tw
