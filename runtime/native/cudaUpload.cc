#include "cudaUpload.h"

#include <sys/mman.h>

#include <chrono>
#include <exception>
#include <thread>

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

/** Steps ahead of the one being read for which the system is asked to read pages that are not in memory. */
constexpr size_t READ_AHEAD = 2;
/** Of buffers, which threads fill with whole elements. */
constexpr size_t BUFFER_STEP = 64;

/** Adds the seconds of a block to a sum. */
class Stopwatch {
 public:
  explicit Stopwatch(double &sum) : sum_(sum), begin_(Clock::now()) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch &) = delete;
  Stopwatch &operator=(const Stopwatch &) = delete;

 private:
  double &sum_;
  Clock::time_point begin_;
};

}  // namespace

CudaUpload::CudaUpload(std::shared_ptr<CudaDevice> device, size_t bufferBytes, size_t threads, size_t buffers)
    : device_(std::move(device)), bufferBytes_(bufferBytes / BUFFER_STEP * BUFFER_STEP), lanes_(threads) {
  // One allocation: each costs a call into the kernel beside its pages.
  pinned_ = std::make_unique<PinnedMemory>(device_, threads * buffers * bufferBytes_);
  uint8_t *data = pinned_->data();
  for (Lane &lane : lanes_) {
    lane.stream = std::make_unique<CudaStream>(device_);
    lane.filled = std::make_unique<CudaEvent>(device_, false);
    lane.buffers.resize(buffers);
    for (Buffer &buffer : lane.buffers) {
      buffer.data = data;
      buffer.emptied = std::make_unique<CudaEvent>(device_, false);
      data += bufferBytes_;
    }
  }
}

/** One call of run(). */
class CudaUpload::Run {
 public:
  Run(CudaUpload &upload, const std::vector<CudaUploadStep> &steps, const CudaProgram *program)
      : upload_(upload), steps_(steps), program_(program), left_(steps.size(), 0) {
    for (size_t step = 0; step < steps.size(); step++) {
      for (const CudaUploadPart &part : steps[step].parts) {
        for (size_t at = 0; at < part.bytes; at += upload.bufferBytes_) {
          const size_t bytes = std::min(upload.bufferBytes_, part.bytes - at);
          chunks_.push_back({step, part.source.get(), part.encoded.get(), part.sourceOffset + at,
                             part.target->address() + part.targetOffset + at, bytes});
          left_[step]++;
        }
      }
    }
    for (Lane &lane : upload_.lanes_) {
      lane.isDirty = false;
      lane.awaited = 0;
      lane.times = {};
    }
  }

  CudaUploadTimes execute() {
    CudaUploadTimes times;
    {
      const Stopwatch watch(times.total);
      std::vector<std::thread> threads;
      try {
        for (size_t i = 1; i < std::min(upload_.lanes_.size(), chunks_.size()); i++) {
          threads.emplace_back([this, i] { work(upload_.lanes_[i]); });
        }
      } catch (const std::system_error &) {
        // No more threads to be had: those that started, and this one, do it all.
      }
      const size_t count = threads.size() + 1;
      work(upload_.lanes_[0]);
      for (std::thread &thread : threads) thread.join();
      settle();
      for (const Lane &lane : upload_.lanes_) {
        times.reading += lane.times.reading / static_cast<double>(count);
        times.bus += lane.times.bus / static_cast<double>(count);
        times.launches += lane.times.launches / static_cast<double>(count);
      }
    }
    for (const Launched &step : launchedSteps_) times.device += step.end->millisecondsSince(*step.begin) / 1000;
    return times;
  }

 private:
  /** At most a buffer of one part. */
  struct Chunk {
    size_t step;
    const Memory *source;
    const Encoded *encoded;
    size_t offset;
    CuAddress target;
    size_t bytes;
  };
  /** Around the launches of a step. */
  struct Launched {
    std::unique_ptr<CudaEvent> begin;
    std::unique_ptr<CudaEvent> end;
  };

  void work(Lane &lane) {
    try {
      {
        // Steps that copy nothing wait for no chunk.
        const std::lock_guard<std::mutex> lock(mutex_);
        launchReady();
      }
      for (size_t i = next_.fetch_add(1), turn = 0; i < chunks_.size(); i = next_.fetch_add(1), turn++) {
        if (!copyChunk(lane, chunks_[i], lane.buffers[turn % lane.buffers.size()])) return;
      }
    } catch (...) {
      next_.store(chunks_.size());  // the others stop at their next chunk
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /** False where another thread has failed. */
  bool copyChunk(Lane &lane, const Chunk &chunk, Buffer &buffer) {
    const CudaApi &api = upload_.device_->use();
    readAhead(chunk.step);
    if (buffer.isInFlight) {
      const Stopwatch watch(lane.times.bus);
      buffer.emptied->wait();
    }
    buffer.isInFlight = false;
    {
      const Stopwatch watch(lane.times.reading);
      if (chunk.encoded == nullptr)
        chunk.source->copyTo(buffer.data, chunk.offset, chunk.bytes);
      else
        decodeRange(*chunk.encoded, chunk.offset / sizeof(float), chunk.bytes / sizeof(float),
                    reinterpret_cast<float *>(buffer.data));
    }
    if (!awaitLaunches(lane, steps_[chunk.step].after)) return false;
    buffer.isInFlight = true;
    api.cuMemcpyHtoDAsync(chunk.target, buffer.data, chunk.bytes, lane.stream->get());
    buffer.emptied->record(lane.stream->get());
    upload_.copiedBytes_.fetch_add(chunk.bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    lane.isDirty = true;
    if (--left_[chunk.step] == 0) launchReady();
    return true;
  }

  /** Asks for the pages of later steps, each once. */
  void readAhead(size_t step) {
    const size_t wanted = std::min(steps_.size(), step + 1 + READ_AHEAD);
    for (size_t known = advised_.load(); known < wanted; known = advised_.load()) {
      if (!advised_.compare_exchange_strong(known, known + 1)) continue;
      for (const CudaUploadPart &part : steps_[known].parts) {
        if (part.source == nullptr || part.source->isWritable()) continue;
        part.source->advise(part.sourceOffset, part.bytes, MADV_WILLNEED);
      }
    }
  }

  /** Holds the lane's next copies back until the launches of the first `count` steps are over. */
  bool awaitLaunches(Lane &lane, size_t count) {
    if (count <= lane.awaited) return true;
    {
      // An event can be waited for on the device once it is recorded, no sooner.
      const Stopwatch watch(lane.times.launches);
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return error_ || launchedSteps_.size() >= count; });
      if (error_) return false;
      launchedSteps_[count - 1].end->holdBack(lane.stream->get());
    }
    lane.awaited = count;
    return true;
  }

  /** Launches every step whose copies are all on their way and whose turn it is. Under the mutex. */
  void launchReady() {
    if (program_ == nullptr || error_) return;
    const CudaApi &api = upload_.device_->use();
    const CuStream stream = upload_.device_->stream();
    while (launchedSteps_.size() < steps_.size() && left_[launchedSteps_.size()] == 0) {
      const CudaUploadStep &step = steps_[launchedSteps_.size()];
      for (Lane &lane : upload_.lanes_) {
        if (!lane.isDirty) continue;
        lane.filled->record(lane.stream->get());
        lane.filled->holdBack(stream);
        lane.isDirty = false;
      }
      Launched launched{std::make_unique<CudaEvent>(upload_.device_, true),
                        std::make_unique<CudaEvent>(upload_.device_, true)};
      launched.begin->record(stream);
      program_->enqueueLaunches(api, step.firstLaunch, step.endLaunch, Counts{});
      launched.end->record(stream);
      launchedSteps_.push_back(std::move(launched));
    }
    changed_.notify_all();
  }

  /** Waits for all that was asked of the device. Throws the first error. */
  void settle() {
    const CudaApi &api = error_ ? upload_.device_->useQuietly() : upload_.device_->use();
    const auto wait = [&](CuStream stream) {
      // After an error all are waited for, and what they say is no news.
      if (error_) api.cuStreamSynchronize.raw(stream);
      else api.cuStreamSynchronize(stream);
    };
    try {
      for (Lane &lane : upload_.lanes_) wait(lane.stream->get());
      if (program_ != nullptr) wait(upload_.device_->stream());
    } catch (...) {
      error_ = std::current_exception();
      settle();
    }
    for (Lane &lane : upload_.lanes_) {
      for (Buffer &buffer : lane.buffers) buffer.isInFlight = false;
    }
    if (error_) std::rethrow_exception(error_);
  }

  CudaUpload &upload_;
  const std::vector<CudaUploadStep> &steps_;
  const CudaProgram *program_;
  std::vector<Chunk> chunks_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> advised_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> left_;  // chunks of each step that are not on their way
  std::vector<Launched> launchedSteps_;
  std::exception_ptr error_;
};

CudaUploadTimes CudaUpload::run(const std::vector<CudaUploadStep> &steps, const CudaProgram *program) {
  copiedBytes_.store(0);
  return Run(*this, steps, program).execute();
}

}  // namespace tw
