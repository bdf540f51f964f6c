/*
 * Finds accesses to shared memory that no barrier orders. Every emulated thread has a vector clock; every two bytes of
 * shared memory remember their last write and the reads since. Two accesses race if one is a write and the later one's
 * thread has not acquired the time of the earlier one: whether they do so in this run does not matter.
 *
 * A unit of its own, compiled without -fsanitize=thread: it takes the calls that the compiler adds to a kernel.
 * What it does not know: proxies and their fences, accesses to global memory.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <dlfcn.h>
#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
#define TW_RACES
#include "races.h"

namespace {
typedef std::vector<uint32_t> Clock;
struct Access { uint32_t thread, time; const void *from; };
constexpr uint32_t NOBODY = ~0u;
/* What is known of two bytes, if `era` is that of the cluster. */
struct Place {
  uint32_t era;
  Access write, read;
  /* Reads besides `read`: 1 more than their index in `more`, 0 where there are none. */
  uint32_t others;
  uint32_t operands;
  bool is_landing;
};
struct Object { Clock gathered, handed; };
typedef std::vector<std::pair<const unsigned char *, size_t>> Group;

uint32_t era;
std::vector<Clock> clocks;
std::unordered_map<const void *, Object> objects;
std::vector<std::vector<Access>> more;
/* Groups of operands under way, the open one last. */
std::vector<std::vector<Group>> groups;
struct Range { unsigned char *first; size_t bytes; std::vector<Place> places; };
Range ranges[2];
std::set<std::pair<const void *, const void *>> known;
std::string report, taken;
constexpr size_t MOST = 64;

void join(Clock &to, const Clock &from) {
  to.resize(clocks.size());
  for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}
/* Where the code lies in its library, for addr2line. */
size_t offset(const void *code) {
  Dl_info info;
  return dladdr(code, &info) ? (size_t)((const char *)code - (const char *)info.dli_fbase) : 0;
}
void race(const char *what, const Access &first, const char *second, const void *from, size_t at) {
  if (known.size() >= MOST || !known.insert({ first.from, from }).second) return;
  char line[256];
  snprintf(line, sizeof line, "%s of thread %u at +%zx, and %s of thread %u at +%zx: byte %zu of shared memory\n", what,
           first.thread, offset(first.from), second, tw_race_thread, offset(from), at);
  report += line;
}
bool isBefore(const Access &access) {
  return access.thread == NOBODY || access.time <= clocks[tw_race_thread][access.thread];
}
Access now(const void *from) { return { tw_race_thread, clocks[tw_race_thread][tw_race_thread], from }; }

void read(Place &place, const void *from, size_t at) {
  if (place.is_landing) race("a copy under way", place.write, "a read", from, at);
  else if (!isBefore(place.write)) race("a write", place.write, "a read", from, at);
  if (place.read.thread == tw_race_thread || (place.others == 0 && isBefore(place.read))) {
    place.read = now(from);
    return;
  }
  if (place.others == 0) {
    more.emplace_back();
    place.others = (uint32_t)more.size();
  }
  std::vector<Access> &others = more[place.others - 1];
  for (Access &each : others) {
    if (each.thread == tw_race_thread) { each = now(from); return; }
  }
  others.push_back(now(from));
}
void write(Place &place, const char *what, const void *from, size_t at) {
  if (place.is_landing) race("a copy under way", place.write, what, from, at);
  else if (!isBefore(place.write)) race("a write", place.write, what, from, at);
  if (place.operands > 0) race("a product under way", place.read, what, from, at);
  if (!isBefore(place.read)) race("a read", place.read, what, from, at);
  if (place.others > 0) {
    for (const Access &each : more[place.others - 1]) if (!isBefore(each)) race("a read", each, what, from, at);
    more[place.others - 1].clear();
  }
  place.write = now(from);
  place.read.thread = NOBODY;
}
template <class F> void each(const void *at, size_t bytes, const F &f) {
  for (Range &range : ranges) {
    const size_t first = (size_t)((const unsigned char *)at - range.first);
    if (first >= range.bytes || bytes == 0) continue;
    for (size_t i = first / 2; i <= (std::min(first + bytes, range.bytes) - 1) / 2; i++) {
      Place &place = range.places[i];
      if (place.era != era) place = { era, { NOBODY, 0, 0 }, { NOBODY, 0, 0 }, 0, 0, false };
      f(place, 2 * i);
    }
  }
}
void reads(const void *at, size_t bytes, const void *from) {
  each(at, bytes, [from](Place &place, size_t i) { read(place, from, i); });
}
void writes(const void *at, size_t bytes, const void *from) {
  each(at, bytes, [from](Place &place, size_t i) { write(place, "a write", from, i); });
}
}  // namespace

#define CALLER __builtin_return_address(0)
extern "C" {
unsigned tw_race_thread;

void tw_race_begin(unsigned threads, unsigned char *memory, size_t bytes, unsigned char *statics,
                   size_t statics_bytes) {
  era++;
  clocks.assign(threads, Clock(threads));
  for (unsigned i = 0; i < threads; i++) clocks[i][i] = 1;
  objects.clear();
  more.clear();
  groups.assign(threads, { Group() });
  const Range now[2] = { { memory, bytes, {} }, { statics, statics_bytes, {} } };
  for (int i = 0; i < 2; i++) {
    ranges[i].first = now[i].first;
    ranges[i].bytes = now[i].bytes;
    ranges[i].places.resize((now[i].bytes + 1) / 2);
  }
}
void tw_race_release(const void *object) {
  join(objects[object].gathered, clocks[tw_race_thread]);
  clocks[tw_race_thread][tw_race_thread]++;
}
void tw_race_close(const void *object) {
  Object &o = objects[object];
  o.handed.swap(o.gathered);
  o.gathered.clear();
}
void tw_race_acquire(const void *object) { join(clocks[tw_race_thread], objects[object].handed); }
void tw_race_read(const void *at, size_t bytes) { reads(at, bytes, CALLER); }
void tw_race_write(const void *at, size_t bytes) { writes(at, bytes, CALLER); }
void tw_race_copy(const void *to, size_t bytes) {
  const void *const from = CALLER;
  each(to, bytes, [from](Place &place, size_t i) {
    write(place, "a copy", from, i);
    place.is_landing = true;
  });
}
void tw_race_landed(const void *to, size_t bytes) {
  each(to, bytes, [](Place &place, size_t) { place.is_landing = false; });
}
void tw_race_operand(const void *at, size_t bytes) {
  const void *const from = CALLER;
  each(at, bytes, [from](Place &place, size_t i) {
    read(place, from, i);
    place.operands++;
  });
  groups[tw_race_thread].back().push_back({ (const unsigned char *)at, bytes });
}
void tw_race_commit() { groups[tw_race_thread].emplace_back(); }
void tw_race_complete(unsigned left) {
  const void *const from = CALLER;
  auto &own = groups[tw_race_thread];
  /* The open group does not count. */
  while (own.size() > left + 1) {
    for (const auto &operand : own.front()) {
      each(operand.first, operand.second, [from](Place &place, size_t i) {
        place.operands--;
        read(place, from, i);
      });
    }
    own.erase(own.begin());
  }
}
/* What was found since the last call, a line each. Valid until the next call. */
const char *tw_race_report() {
  taken.swap(report);
  report.clear();
  known.clear();
  return taken.c_str();
}

/* What the compiler calls. */
#define ACCESSES(n) \
  void __tsan_read##n(void *at) { reads(at, n, CALLER); } \
  void __tsan_write##n(void *at) { writes(at, n, CALLER); } \
  void __tsan_unaligned_read##n(void *at) { reads(at, n, CALLER); } \
  void __tsan_unaligned_write##n(void *at) { writes(at, n, CALLER); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void *at, size_t bytes) { reads(at, bytes, CALLER); }
void __tsan_write_range(void *at, size_t bytes) { writes(at, bytes, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
}
