#include "cudaPipeline.h"

namespace tw {
namespace {

constexpr CuResult CU_PEER_ACCESS_ALREADY_ENABLED = 704;

/** The best way from one device to another. Lets the first write to the second where it can. */
CudaRoute openRoute(const CudaDevice &from, const CudaDevice &to) {
  if (from.number() == to.number()) return CudaRoute::Local;
  const CudaApi &api = from.use();
  if (!api.cuDeviceCanAccessPeer || !api.cuCtxEnablePeerAccess || !api.cuMemcpyPeerAsync) return CudaRoute::Host;
  int can = 0;
  if (api.cuDeviceCanAccessPeer.raw(&can, from.number(), to.number()) != CU_SUCCESS || can == 0) return CudaRoute::Host;
  const CuResult result = api.cuCtxEnablePeerAccess.raw(to.context(), 0);
  return result == CU_SUCCESS || result == CU_PEER_ACCESS_ALREADY_ENABLED ? CudaRoute::Peer : CudaRoute::Host;
}

}  // namespace

CudaPipeline::CudaPipeline(std::vector<CudaPipelineStage> stages, size_t inFlight, bool usesPeers)
    : stages_(std::move(stages)) {
  allocate(inFlight, usesPeers);
  enqueuer_ = std::thread([this] { enqueueAll(); });
  finisher_ = std::thread([this] { finishAll(); });
}

CudaPipeline::~CudaPipeline() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    isOver_ = true;
  }
  changed_.notify_all();
  enqueuer_.join();
  finisher_.join();
  settle();
}

void CudaPipeline::allocate(size_t inFlight, bool usesPeers) {
  const size_t arenas = stages_[0].arenas.size();
  for (size_t s = 0; s < stages_.size(); s++) {
    const auto &device = stages_[s].device;
    Lane lane{std::make_unique<CudaStream>(device),
              std::make_unique<CudaStream>(device),
              {},
              std::vector<bool>(arenas, false)};
    for (size_t i = 0; i < arenas; i++) lane.freed.push_back(std::make_unique<CudaEvent>(device, false));
    lanes_.push_back(std::move(lane));
    if (s + 1 == stages_.size()) break;
    const auto &next = stages_[s + 1].device;
    Link link;
    link.route = usesPeers ? openRoute(*device, *next) : CudaRoute::Host;
    link.isUsed.assign(arenas, false);
    for (size_t i = 0; link.route == CudaRoute::Host && stages_[s].crossingBytes > 0 && i < arenas; i++) {
      link.staging.push_back(std::make_unique<PinnedMemory>(device, stages_[s].crossingBytes));
      link.emptied.push_back(std::make_unique<CudaEvent>(next, false));
    }
    links_.push_back(std::move(link));
  }
  for (size_t i = 0; i < inFlight; i++) {
    CudaFlight flight;
    for (const CudaPipelineStage &stage : stages_) {
      CudaStageFlight part;
      if (stage.inputBytes > 0) part.inputs = std::make_unique<PinnedMemory>(stage.device, stage.inputBytes);
      if (stage.outputBytes > 0) part.outputs = std::make_unique<PinnedMemory>(stage.device, stage.outputBytes);
      part.hasInputs = std::make_unique<CudaEvent>(stage.device, false);
      for (auto *event : {&part.begin, &part.end, &part.sending, &part.sent, &part.receiving, &part.received}) {
        *event = std::make_unique<CudaEvent>(stage.device, true);
      }
      flight.stages.push_back(std::move(part));
    }
    flights_.push_back(std::move(flight));
  }
}

CudaFlight &CudaPipeline::takeFlight() {
  for (CudaFlight &flight : flights_) {
    if (flight.isTaken) continue;
    flight.isTaken = true;
    return flight;
  }
  fail(std::to_string(flights_.size()) + " micro-batches are in this pipeline already: wait for one");
}

void CudaPipeline::start(CudaPipelineJob &job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    started_.push_back(&job);
  }
  changed_.notify_all();
}

void CudaPipeline::enqueueAll() {
  for (;;) {
    CudaPipelineJob *job = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return isOver_ || !started_.empty(); });
      if (started_.empty()) return;
      job = started_.front();
      started_.pop_front();
    }
    enqueue(*job);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      enqueued_.push_back(job);
    }
    changed_.notify_all();
  }
}

void CudaPipeline::finishAll() {
  for (;;) {
    CudaPipelineJob *job = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return isOver_ || !enqueued_.empty(); });
      if (enqueued_.empty()) return;
      job = enqueued_.front();
      enqueued_.pop_front();
    }
    try {
      if (!job->error) measure(*job);
    } catch (...) {
      job->error = std::current_exception();
    }
    // The job may be gone before this returns.
    auto finish = std::move(job->finish);
    finish();
  }
}

void CudaPipeline::enqueue(CudaPipelineJob &job) {
  try {
    for (size_t s = 0; s < stages_.size(); s++) {
      job.stages[s].place->wait();
      enqueueStage(job, s);
      job.stages[s].place->leave();
    }
  } catch (...) {
    job.error = std::current_exception();
    // Streams may still use the flight, and events that were never recorded may be waited for.
    settle();
  }
  for (CudaStageRun &stage : job.stages) stage.place->leave();
}

void CudaPipeline::settle() noexcept {
  for (size_t s = 0; s < stages_.size(); s++) {
    const CudaApi &api = stages_[s].device->useQuietly();
    for (const CuStream stream : {stages_[s].device->stream(), lanes_[s].in->get(), lanes_[s].out->get()})
      api.cuStreamSynchronize.raw(stream);
  }
  for (Lane &lane : lanes_) lane.isUsed.assign(lane.isUsed.size(), false);
  for (Link &link : links_) link.isUsed.assign(link.isUsed.size(), false);
}

void CudaPipeline::hold(size_t stage, CuStream stream, const CudaEvent &event) const {
  stages_[stage].device->use().cuStreamWaitEvent(stream, event.handle(), 0);
}

void CudaPipeline::enqueueStage(CudaPipelineJob &job, size_t s) {
  receive(job, s);
  compute(job, s);
  send(job, s);
  lanes_[s].freed[job.arena]->record(lanes_[s].out->get());
  lanes_[s].isUsed[job.arena] = true;
}

/** Inputs, and what comes through the host, once the arena's last micro-batch has left it. */
void CudaPipeline::receive(CudaPipelineJob &job, size_t s) {
  const CudaProgram &program = *job.stages[s].program;
  const CudaStageFlight &flight = job.flight->stages[s];
  const Lane &lane = lanes_[s];
  const CuStream in = lane.in->get();
  if (lane.isUsed[job.arena]) hold(s, in, *lane.freed[job.arena]);
  const CudaApi &api = stages_[s].device->use();
  if (program.inputBytes > 0) program.copyInputs(api, *flight.inputs, job.counts, in);
  flight.hasInputs->record(in);
  if (s == 0 || links_[s - 1].route != CudaRoute::Host) return;
  hold(s, in, *job.flight->stages[s - 1].sent);
  Link &link = links_[s - 1];
  flight.receiving->record(in);
  size_t staged = 0;
  for (const CudaCrossing &crossing : job.stages[s - 1].crossings) {
    const size_t bytes = crossing.rows.in(job.counts) * crossing.rowBytes;
    if (bytes == 0) continue;
    api.cuMemcpyHtoDAsync(stages_[s].arenas[job.arena]->address() + crossing.offset,
                          link.staging[job.arena]->data() + staged, bytes, in);
    staged += bytes;
  }
  flight.received->record(in);
  if (link.staging.empty()) return;
  link.emptied[job.arena]->record(in);
  link.isUsed[job.arena] = true;
}

void CudaPipeline::compute(CudaPipelineJob &job, size_t s) {
  const CudaProgram &program = *job.stages[s].program;
  CudaStageFlight &flight = job.flight->stages[s];
  const auto &device = stages_[s].device;
  const CuStream stream = device->stream();
  hold(s, stream, *flight.hasInputs);
  if (s > 0)
    hold(s, stream, links_[s - 1].route == CudaRoute::Host ? *flight.received : *job.flight->stages[s - 1].sent);
  while (job.isTimed && flight.marks.size() <= program.launches.size())
    flight.marks.push_back(std::make_unique<CudaEvent>(device, true));
  const CudaApi &api = device->use();
  flight.begin->record(stream);
  bool isFirst = true;
  for (size_t i = 0; i < program.launches.size(); i++) {
    if (job.isTimed) flight.marks[i]->record(stream);
    if (job.skipsAdapters && program.launches[i].isForAdapters) continue;
    // What the first launch reads was not made by the launch before it, which alone an early one would wait for.
    program.enqueueLaunch(api, i, job.counts, !isFirst);
    isFirst = false;
  }
  if (job.isTimed) flight.marks[program.launches.size()]->record(stream);
  flight.end->record(stream);
}

/** To the next device once nothing there uses the arena, or the outputs to the host. */
void CudaPipeline::send(CudaPipelineJob &job, size_t s) {
  const CudaStageRun &run = job.stages[s];
  const CudaStageFlight &flight = job.flight->stages[s];
  const CuStream out = lanes_[s].out->get();
  hold(s, out, *flight.end);
  const CudaApi &api = stages_[s].device->use();
  if (s + 1 == stages_.size()) {
    flight.sending->record(out);
    for (const CudaPort &port : run.program->outputs) {
      const size_t bytes = port.spanBytes(job.counts);
      if (bytes > 0)
        api.cuMemcpyDtoHAsync(flight.outputs->data() + port.pinnedOffset, run.program->slots[port.slot].address(),
                              bytes, out);
    }
    flight.sent->record(out);
    return;
  }
  const Link &link = links_[s];
  if (link.route == CudaRoute::Host) {
    if (link.isUsed[job.arena]) hold(s, out, *link.emptied[job.arena]);
  } else if (lanes_[s + 1].isUsed[job.arena]) {
    hold(s, out, *lanes_[s + 1].freed[job.arena]);
  }
  const CudaDevice &from = *stages_[s].device;
  const CudaDevice &to = *stages_[s + 1].device;
  const CuAddress source = stages_[s].arenas[job.arena]->address();
  const CuAddress target = stages_[s + 1].arenas[job.arena]->address();
  from.use();
  flight.sending->record(out);
  size_t staged = 0;
  for (const CudaCrossing &crossing : run.crossings) {
    const size_t bytes = crossing.rows.in(job.counts) * crossing.rowBytes;
    if (bytes == 0) continue;
    switch (link.route) {
      case CudaRoute::Local:
        api.cuMemcpyDtoDAsync(target + crossing.offset, source + crossing.offset, bytes, out);
        break;
      case CudaRoute::Peer:
        api.cuMemcpyPeerAsync(target + crossing.offset, to.context(), source + crossing.offset, from.context(), bytes,
                              out);
        break;
      case CudaRoute::Host:
        api.cuMemcpyDtoHAsync(link.staging[job.arena]->data() + staged, source + crossing.offset, bytes, out);
        break;
    }
    staged += bytes;
  }
  flight.sent->record(out);
}

void CudaPipeline::measure(CudaPipelineJob &job) const {
  job.flight->stages.back().sent->wait();
  for (size_t s = 0; s < stages_.size(); s++) {
    const CudaClock &clock = *stages_[s].clock;
    const CudaStageFlight &flight = job.flight->stages[s];
    CudaStageTimes times;
    times.compute = {clock.at(*flight.begin), clock.at(*flight.end)};
    times.sent = {clock.at(*flight.sending), clock.at(*flight.sent)};
    if (s > 0 && links_[s - 1].route == CudaRoute::Host)
      times.received = {clock.at(*flight.receiving), clock.at(*flight.received)};
    for (size_t i = 0; job.isTimed && i < job.stages[s].program->launches.size(); i++) {
      times.launchMilliseconds.push_back(flight.marks[i + 1]->millisecondsSince(*flight.marks[i]));
    }
    job.times.push_back(std::move(times));
  }
}

}  // namespace tw
