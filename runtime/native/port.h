// What a call copies into a program's buffers and out of them: rows of 2- or 4-byte elements.
#ifndef TILEWRIGHT_PORT_H
#define TILEWRIGHT_PORT_H
#include "extents.h"
#include "dtype.h"

namespace tw {

/** The shape of an input or output. JavaScript's side is dense; in the buffer, rows are `stride` elements apart. */
struct Port {
  size_t slot = 0;
  DType dtype = DType::I32;
  Extent rows;
  size_t columns = 1;
  size_t stride = 1;

  /** Bytes of all rows where they lie in the buffer, pads between them included. */
  size_t spanBytes(const Counts &counts) const { return rows.in(counts) * stride * bytesOf(dtype); }
  size_t elements(const Counts &counts) const { return rows.in(counts) * columns; }

  /** The elements of a typed array of the port's own type and of the length that the counts ask for. */
  const uint8_t *parseData(const Napi::Value &value, const Counts &counts, const std::string &what) const;
  /** Dense rows to rows `stride` apart. Pads keep what they hold. */
  void scatter(uint8_t *target, const uint8_t *dense, const Counts &counts) const;
  /** Rows `stride` apart to a dense ArrayBuffer. */
  Napi::ArrayBuffer gather(Napi::Env env, const uint8_t *source, const Counts &counts) const;

  /**
   * From { slot, dtype, rows, columns, stride }. `slots`: how many there are; whether the rows fit theirs is for the
   * caller to check.
   */
  static Port parse(const Napi::Value &value, const Extents &extents, size_t slots, const std::string &what);
};

/** f32, f16, bf16 or i32. */
DType parseDType(const Napi::Value &value, const std::string &what);

/** Bytes to zero behind an input's end, so that a padded read is in range: up to a whole 128, within its slot. */
inline size_t paddedBytes(size_t bytes, size_t slotBytes) { return std::min(slotBytes, roundUp(bytes, 128)); }

}  // namespace tw
#endif
