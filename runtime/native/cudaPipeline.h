// Micro-batches through the stages of a plan, each on a device of its own: launches, and copies between devices on
// their copy engines, ordered by events alone. Nothing waits on the host between a micro-batch's first launch and the
// end of its last copy.
#ifndef TILEWRIGHT_CUDA_PIPELINE_H
#define TILEWRIGHT_CUDA_PIPELINE_H
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cudaClock.h"
#include "cudaProgram.h"

namespace tw {

/** Rows of a buffer that the next stage reads, at the same place of its arena. */
struct CudaCrossing {
  size_t offset = 0;
  Extent rows;
  size_t rowBytes = 0;
};

/** How a stage's results reach the next device. */
enum class CudaRoute {
  /** Both stages are on one device. */
  Local,
  /** The copy engine writes to the other device. */
  Peer,
  /** Through pinned memory of the host. */
  Host,
};

/** A device of a pipeline. */
struct CudaPipelineStage {
  std::shared_ptr<CudaDevice> device;
  /** Of equal size on every stage. A micro-batch uses the arena of one index on all of them. */
  std::vector<std::shared_ptr<CudaMemory>> arenas;
  std::shared_ptr<CudaClock> clock;
  /** Largest number of bytes of a pinned area for inputs, and for outputs where it is the last. */
  size_t inputBytes = 0;
  size_t outputBytes = 0;
  /** Most bytes that it hands to the next. */
  size_t crossingBytes = 0;
};

/** Milliseconds since the epoch. */
struct CudaSpan {
  double begin = 0;
  double end = 0;
};

/** What one device did for a micro-batch. */
struct CudaStageTimes {
  CudaSpan compute;
  /** To the next device, to the host where that is the way, or of the outputs. */
  CudaSpan sent;
  /** From the host, where that is the way. */
  CudaSpan received;
  std::vector<double> launchMilliseconds;
};

/** A stage's share of one micro-batch. */
struct CudaStageRun {
  std::shared_ptr<CudaProgram> program;
  std::vector<CudaCrossing> crossings;
  std::shared_ptr<Turnstile::Place> place;
};

/** What a micro-batch in flight owns on one stage. */
struct CudaStageFlight {
  std::unique_ptr<PinnedMemory> inputs;
  std::unique_ptr<PinnedMemory> outputs;
  std::unique_ptr<CudaEvent> hasInputs;
  std::unique_ptr<CudaEvent> begin;
  std::unique_ptr<CudaEvent> end;
  std::unique_ptr<CudaEvent> sending;
  std::unique_ptr<CudaEvent> sent;
  std::unique_ptr<CudaEvent> receiving;
  std::unique_ptr<CudaEvent> received;
  std::vector<std::unique_ptr<CudaEvent>> marks;  // around each launch; made by the first timed run
};

struct CudaFlight {
  std::vector<CudaStageFlight> stages;
  bool isTaken = false;
};

/** One micro-batch, from the call to its answer. `finish` is called once, on the finisher's thread. */
struct CudaPipelineJob {
  Counts counts;
  size_t arena = 0;
  bool isTimed = false;
  bool skipsAdapters = false;
  CudaFlight *flight = nullptr;
  std::vector<CudaStageRun> stages;
  std::vector<CudaStageTimes> times;
  std::exception_ptr error;
  std::function<void()> finish;
};

class CudaPipeline {
 public:
  /** Enables peers, unless everything is to go through the host; allocates what flights need, starts the threads. */
  CudaPipeline(std::vector<CudaPipelineStage> stages, size_t inFlight, bool usesPeers);
  /** Waits for what is in flight. */
  ~CudaPipeline();
  CudaPipeline(const CudaPipeline &) = delete;
  CudaPipeline &operator=(const CudaPipeline &) = delete;

  const std::vector<CudaPipelineStage> &stages() const { return stages_; }
  CudaRoute route(size_t cut) const { return links_[cut].route; }
  /** A free flight; throws where all are taken. For one thread, the one that gives them back. */
  CudaFlight &takeFlight();
  /** Jobs are enqueued in the order of these calls. Does not wait. The job must live until it is finished. */
  void start(CudaPipelineJob &job);

 private:
  /** Streams of a stage beside its device's own, and since when each of its arenas is free. */
  struct Lane {
    std::unique_ptr<CudaStream> in;
    std::unique_ptr<CudaStream> out;
    /** After the last micro-batch's launches in an arena and the copies out of it. */
    std::vector<std::unique_ptr<CudaEvent>> freed;
    std::vector<bool> isUsed;
  };
  /** The way from a stage to the next; where that is through the host, a pinned area for each arena. */
  struct Link {
    CudaRoute route = CudaRoute::Local;
    std::vector<std::unique_ptr<PinnedMemory>> staging;
    std::vector<std::unique_ptr<CudaEvent>> emptied;
    std::vector<bool> isUsed;
  };
  void allocate(size_t inFlight, bool usesPeers);
  void enqueueAll();
  void finishAll();
  void enqueue(CudaPipelineJob &job);
  void enqueueStage(CudaPipelineJob &job, size_t stage);
  void receive(CudaPipelineJob &job, size_t stage);
  void compute(CudaPipelineJob &job, size_t stage);
  void send(CudaPipelineJob &job, size_t stage);
  /** Waits for every stream and clears all dependencies: after an error in the middle of a micro-batch. */
  void settle() noexcept;
  void measure(CudaPipelineJob &job) const;
  /** Holds a stream of a stage back until an event of any device. */
  void hold(size_t stage, CuStream stream, const CudaEvent &event) const;

  std::vector<CudaPipelineStage> stages_;
  std::vector<Lane> lanes_;
  std::vector<Link> links_;
  std::vector<CudaFlight> flights_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CudaPipelineJob *> started_;
  std::deque<CudaPipelineJob *> enqueued_;
  bool isOver_ = false;
  std::thread enqueuer_;
  std::thread finisher_;
};

}  // namespace tw
#endif
