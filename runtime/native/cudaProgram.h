// The launches of one bucket, bound to device memory, and their way onto the stream.
#ifndef TILEWRIGHT_CUDA_PROGRAM_H
#define TILEWRIGHT_CUDA_PROGRAM_H
#include <atomic>

#include "cudaClock.h"
#include "cudaMemory.h"
#include "cudaModule.h"
#include "program.h"

namespace tw {

/** Blocks along one axis, as ir/cuda.ts's GridExtent. */
struct CudaGridExtent {
  enum class Kind { Constant, Tiles, Persistent };
  Kind kind = Kind::Constant;
  size_t count = 1;
  Extent extent;
  size_t per = 1;
  size_t times = 1;
  size_t blocksPerMultiprocessor = 1;
  /** 0 where the extent is 0: then there is nothing to launch. */
  size_t resolve(const Counts &counts, size_t multiprocessors, size_t cluster) const;
};

struct CudaLaunchSpec {
  std::string name;
  std::shared_ptr<CudaModule> module;
  CuFunction function = nullptr;
  /** The kernel's parameters: ints, then pointers, then tensor maps. */
  std::vector<Extent> sizes;
  std::vector<CuAddress> pointers;
  std::vector<CuTensorMap> maps;
  CudaGridExtent gridX;
  CudaGridExtent gridY;
  unsigned threads = 0;
  unsigned sharedBytes = 0;
  unsigned cluster = 1;
  bool isProgrammatic = false;
  /** Does nothing in a call without adapters. */
  bool isForAdapters = false;
};

/** Bytes between two inputs that take less time to copy than another copy takes to start. */
constexpr size_t MAX_COPIED_GAP = 16 << 10;

struct CudaPort : Port {
  /** Where its data lie in a pinned area. */
  size_t pinnedOffset = 0;
  /** Room for them there at the largest micro-batch; and up to the next input, which is copied along. */
  size_t pinnedBytes = 0;
  size_t roomBytes = 0;
};

/** Inputs that are neighbours on the device and in a pinned area. */
struct CudaInputCopy {
  CuAddress target = 0;
  size_t pinnedOffset = 0;
  size_t bytes = 0;
  /** Their numbers among the inputs, in order of addresses. */
  std::vector<size_t> inputs;
};

struct CudaRunOptions {
  bool isTimed = false;
  bool isSynchronous = false;
  /** Launches that are for adapters alone are left out. */
  bool skipsAdapters = false;
  size_t first = 0;
  size_t end = 0;
};

struct CudaRunResult {
  double milliseconds = 0;
  /** Milliseconds since the epoch, where the program has a clock. */
  double begin = 0;
  double end = 0;
  std::vector<double> launchMilliseconds;
};

struct CudaTimeOptions {
  std::vector<size_t> launches;
  size_t warmup = 0;
  size_t repeats = 1;
  size_t perSample = 1;
  size_t flushBytes = 0;
};

/** What a run in flight owns: its inputs and outputs in pinned memory and its marks on the stream. */
struct CudaArea {
  std::shared_ptr<PinnedMemory> inputs;
  std::shared_ptr<PinnedMemory> outputs;
  std::unique_ptr<CudaEvent> begin;
  std::unique_ptr<CudaEvent> end;
  std::vector<std::unique_ptr<CudaEvent>> marks;  // around each launch; made by the first timed run
  std::atomic<bool> isTaken{false};
};

class CudaProgram {
 public:
  static constexpr size_t AREAS = 2;
  std::shared_ptr<CudaDevice> device;
  std::vector<CudaSlot> slots;
  std::vector<CudaLaunchSpec> launches;
  std::vector<CudaPort> inputs;
  std::vector<CudaPort> outputs;
  std::vector<CudaInputCopy> inputCopies;
  size_t inputBytes = 0;   // of a pinned area
  size_t outputBytes = 0;
  Extents extents;
  /** None of a program that only runs in a pipeline. */
  std::vector<std::unique_ptr<CudaArea>> areas;
  std::shared_ptr<PinnedPool> pinned;
  /** Says when runs began and ended, where there is one. */
  std::shared_ptr<CudaClock> clock;

  /** Once everything above is set. */
  void allocateAreas();
  /** A free area until the result is destroyed; throws where both are in flight. */
  std::shared_ptr<CudaArea> takeArea(const std::shared_ptr<CudaProgram> &self);
  /** Enqueues copies of what a call of this size has of each input, from a pinned area. */
  void copyInputs(const CudaApi &api, const PinnedMemory &from, const Counts &counts, CuStream stream) const;
  /**
   * Enqueues one launch for the caller that holds the turn. It waits for all earlier launches unless it may overlap.
   */
  void enqueueLaunch(const CudaApi &api, size_t index, const Counts &counts, bool mayOverlap) const {
    enqueue(api, launches[index], counts, mayOverlap);
  }
  /** Enqueues launches first to end − 1, nothing else, for the caller that holds the turn. */
  void enqueueLaunches(const CudaApi &api, size_t first, size_t end, const Counts &counts) const;
  /** Enqueues when the turn has come, lets the next in, and waits for the end. */
  CudaRunResult run(CudaArea &area, Turnstile::Place &place, const Counts &counts, const CudaRunOptions &options);
  /** Milliseconds of each sample. The area's inputs are copied first where `hasInputs`. */
  std::vector<double> time(CudaArea &area, Turnstile::Place &place, const Counts &counts, bool hasInputs,
                           const CudaTimeOptions &options);

 private:
  void enqueue(const CudaApi &api, const CudaLaunchSpec &launch, const Counts &counts, bool mayOverlap = true) const;
};

}  // namespace tw
#endif
