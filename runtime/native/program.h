// The launches of one bucket, bound to addresses, and the walk over them.
#ifndef TILEWRIGHT_PROGRAM_H
#define TILEWRIGHT_PROGRAM_H
#include "extents.h"
#include "library.h"
#include "memory.h"
#include "pool.h"
#include "port.h"

namespace tw {

/** A buffer that a launch writes, to be searched for values that are not finite. */
struct Write {
  size_t slot = 0;
  DType dtype = DType::F32;
  Extent rows;
  Extent columns;
  size_t stride = 0;
  /** −∞ is a value of this buffer: a mask, or the target's logit outside its block. */
  bool allowsNegativeInfinity = false;
};

struct LaunchSpec {
  std::string name;
  std::shared_ptr<Library> library;
  tw_kernel kernel = nullptr;
  std::vector<void *> buffers;
  std::vector<Write> writes;
  /** Does nothing in a call without adapters. */
  bool isForAdapters = false;
};

struct NonFinite {
  size_t launch = 0;
  size_t write = 0;
  size_t row = 0;
  size_t column = 0;
};

struct RunOptions {
  bool isTimed = false;
  bool isChecked = false;
  /** Launches that are for adapters alone are left out. */
  bool skipsAdapters = false;
};

struct RunResult {
  std::vector<double> launchNs;
  bool isFinite = true;
  NonFinite where;
};

class Program {
 public:
  std::shared_ptr<Pool> pool;
  std::vector<Slot> slots;
  std::vector<LaunchSpec> launches;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  Extents extents;
  Slot scratch;
  size_t scratchBytes = 0;  // of each worker

  /** Runs all launches on the pool, a barrier after each. Throws where the pool was stopped. */
  RunResult run(const Counts &counts, RunOptions options) const;
  /** Seconds of each of `repeats` runs of one launch, after one that is not counted. */
  std::vector<double> timeLaunch(size_t index, const Counts &counts, size_t repeats) const;

 private:
  tw_launch bind(const LaunchSpec &launch, const Counts &counts, int64_t *next) const;
  bool findNonFinite(size_t index, const Counts &counts, NonFinite &where) const;
};

class ProgramWrap : public Napi::ObjectWrap<ProgramWrap> {
 public:
  static constexpr const char *NAME = "Program";
  static const napi_type_tag TAG;
  explicit ProgramWrap(const Napi::CallbackInfo &info);

 private:
  friend Napi::Function initProgram(Napi::Env env);
  const std::shared_ptr<Program> &get() const;
  Napi::Value run(const Napi::CallbackInfo &info);
  Napi::Value timeLaunch(const Napi::CallbackInfo &info);
  void release(const Napi::CallbackInfo &info);
  std::shared_ptr<Program> program_;
};

}  // namespace tw
#endif
