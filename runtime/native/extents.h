// The extents of a program: sizes that every call brings, known by name where a binding is checked, by index after
// that.
#ifndef TILEWRIGHT_EXTENTS_H
#define TILEWRIGHT_EXTENTS_H
#include <array>

#include "abi.h"
#include "support.h"

namespace tw {

/** The sizes of one call, in the order in which its program declares them. */
struct Counts {
  std::array<size_t, TW_MAX_EXTENTS> values{};
  size_t size = 0;
};

/** A fixed number, or one that a call brings. */
class Extent {
 public:
  Extent() = default;
  static Extent fixed(size_t value) { return {-1, value}; }
  static Extent of(size_t index) { return {static_cast<int>(index), 0}; }
  size_t in(const Counts &counts) const { return index_ < 0 ? value_ : counts.values[static_cast<size_t>(index_)]; }

 private:
  Extent(int index, size_t value) : index_(index), value_(value) {}
  int index_ = -1;
  size_t value_ = 0;
};

/** What a program declares: names, and the largest count of each. */
class Extents {
 public:
  /** From an array of { name, most }. Throws what is wrong with it. */
  static Extents parse(const Napi::Value &value, const std::string &what);
  size_t size() const { return names_.size(); }
  /** The largest call. */
  const Counts &most() const { return most_; }
  /** A number, or the name of one of these extents. */
  Extent parseExtent(const Napi::Value &value, const std::string &what) const;
  /** The counts of a call: an array of integers, each from 0 to the largest. */
  Counts parseCounts(const Napi::Value &value) const;

 private:
  std::vector<std::string> names_;
  Counts most_;
};

}  // namespace tw
#endif
