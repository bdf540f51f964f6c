#include "cudaUpload.h"

#include <chrono>
#include <exception>
#include <thread>

namespace tw {

CudaUpload::CudaUpload(std::shared_ptr<CudaDevice> device, size_t stagingBytes, size_t threads)
    : device_(std::move(device)), stagingBytes_(stagingBytes), lanes_(threads) {
  for (Lane &lane : lanes_) {
    lane.stream = std::make_unique<CudaStream>(device_);
    for (Staging &staging : lane.staging) {
      staging.memory = std::make_unique<PinnedMemory>(device_, stagingBytes_);
      staging.emptied = std::make_unique<CudaEvent>(device_, false);
    }
  }
}

void CudaUpload::drive(Lane &lane, const std::vector<Chunk> &chunks, std::atomic<size_t> &next) {
  const CudaApi &api = device_->use();
  size_t turn = 0;
  for (size_t i = next.fetch_add(1); i < chunks.size(); i = next.fetch_add(1)) {
    const Chunk &chunk = chunks[i];
    Staging &staging = lane.staging[turn++ % 2];
    if (staging.isInFlight) staging.emptied->wait();
    staging.isInFlight = false;
    std::memcpy(staging.memory->data(), chunk.source, chunk.bytes);
    staging.isInFlight = true;
    api.cuMemcpyHtoDAsync(chunk.target, staging.memory->data(), chunk.bytes, lane.stream->get());
    staging.emptied->record(lane.stream->get());
    copiedBytes_.fetch_add(chunk.bytes);
  }
}

double CudaUpload::copy(const std::vector<CudaUploadPart> &parts) {
  const auto started = std::chrono::steady_clock::now();
  copiedBytes_.store(0);
  std::vector<Chunk> chunks;
  for (const CudaUploadPart &part : parts) {
    for (size_t at = 0; at < part.bytes; at += stagingBytes_) {
      chunks.push_back({part.source->data() + part.sourceOffset + at, part.target->address() + part.targetOffset + at,
                        std::min(stagingBytes_, part.bytes - at)});
    }
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto body = [&](Lane &lane) {
    try {
      drive(lane, chunks, next);
      device_->use().cuStreamSynchronize(lane.stream->get());
    } catch (...) {
      next.store(chunks.size());  // the others stop at their next chunk
      // The buffers must be out of flight before anyone fills them again; what failed is told already.
      device_->useQuietly().cuStreamSynchronize.raw(lane.stream->get());
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
    for (Staging &staging : lane.staging) staging.isInFlight = false;
  };
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(lanes_.size(), chunks.size()); i++) threads.emplace_back(body, std::ref(lanes_[i]));
  } catch (const std::system_error &) {
    // No more threads to be had: those that started, and this one, do it all.
  }
  body(lanes_[0]);
  for (std::thread &thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace tw
