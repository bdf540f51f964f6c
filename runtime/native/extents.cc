#include "extents.h"

#include <climits>

namespace tw {
namespace {

constexpr size_t LONGEST_NAME = 64;

bool isName(const std::string &text) {
  const auto isLetter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= LONGEST_NAME && isLetter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return isLetter(c) || isDigit(c); });
}

}  // namespace

Extents Extents::parse(const Napi::Value &value, const std::string &what) {
  const Napi::Array array = arrayArg(value, what);
  if (array.Length() > TW_MAX_EXTENTS) {
    fail(what + " has " + std::to_string(array.Length()) + " entries, at most " + std::to_string(TW_MAX_EXTENTS) +
         " are possible");
  }
  Extents extents;
  for (uint32_t i = 0; i < array.Length(); i++) {
    const std::string entry = what + "[" + std::to_string(i) + "]";
    const Napi::Object object = objectArg(array.Get(i), entry);
    const std::string name = stringArg(object.Get("name"), entry + ".name");
    if (!isName(name))
      fail(entry + ".name must be an identifier of at most " + std::to_string(LONGEST_NAME) + " characters");
    if (std::find(extents.names_.begin(), extents.names_.end(), name) != extents.names_.end())
      fail(what + " names " + name + " twice");
    extents.names_.push_back(name);
    // Kernels of GPUs take it as an int.
    extents.most_.values[i] = static_cast<size_t>(integerArg(object.Get("most"), entry + ".most", 1, INT_MAX));
    extents.most_.size = i + 1;
  }
  return extents;
}

Extent Extents::parseExtent(const Napi::Value &value, const std::string &what) const {
  if (!value.IsString()) return Extent::fixed(static_cast<size_t>(integerArg(value, what, 0, MAX_EXTENT)));
  const std::string name = stringArg(value, what);
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) fail(what + " is " + name + ", which is no extent of the program");
  return Extent::of(static_cast<size_t>(found - names_.begin()));
}

Counts Extents::parseCounts(const Napi::Value &value) const {
  const Napi::Array array = arrayArg(value, "extents");
  if (array.Length() != names_.size()) {
    fail("The program has " + std::to_string(names_.size()) + " extents, not " + std::to_string(array.Length()));
  }
  Counts counts;
  counts.size = names_.size();
  for (uint32_t i = 0; i < array.Length(); i++) {
    counts.values[i] =
        static_cast<size_t>(integerArg(array.Get(i), names_[i], 0, static_cast<int64_t>(most_.values[i])));
  }
  return counts;
}

}  // namespace tw
