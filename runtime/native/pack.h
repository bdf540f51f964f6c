// Weights from the checkpoint's layout into the one that kernels read (ir/kernel.ts, WeightDecl).
#ifndef TILEWRIGHT_PACK_H
#define TILEWRIGHT_PACK_H
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tw {

struct Encoded;
struct QuadFormat;

/** How stored elements become f32 and back. Memory may be unaligned. */
struct StorageFormat {
  size_t bytes;  // of an element
  void (*decode)(const uint8_t *in, size_t count, float *out);
  /** To the nearest stored element, ties to even; a NaN stays a NaN. */
  void (*encode)(const float *in, size_t count, uint8_t *out);
  /** decode(encode(x)) in place. */
  void (*round)(float *values, size_t count);
};
/** Formats by the code that ir/storage.ts gives them. */
constexpr size_t FORMAT_COUNT = 3;
extern const StorageFormat FORMATS[FORMAT_COUNT];

/** A rectangle of a matrix. Strides count elements. */
struct PackTile {
  const uint8_t *data = nullptr;  // may be unaligned
  size_t row = 0, rows = 0, column = 0, columns = 0;
  size_t rowStride = 0, columnStride = 1;
};

/**
 * A [rows, k] matrix: bytes in memory, in one place or in tiles that cover it, or encoded, or values made up from a
 * counter, or one value throughout.
 */
struct PackSource {
  enum class Kind { Memory, Random, Constant, Tiles, Encoded };
  Kind kind = Kind::Memory;
  const StorageFormat *format = nullptr;
  size_t rows = 0;
  const uint8_t *data = nullptr;  // may be unaligned
  uint64_t seed = 0;
  float factor = 0;  // standard deviation × √3 / 65536
  float value = 0;
  std::vector<PackTile> tiles;
  std::shared_ptr<const Encoded> encoded;
};

struct PackJob {
  enum class Layout { Rows, Panels, Vnni, Quads };
  Layout layout = Layout::Panels;
  const StorageFormat *format = nullptr;  // of single elements
  const QuadFormat *quads = nullptr;      // of layout Quads, whose sources hold blocks of it, or rows that become codes
  /** Codes of rows, and their scales: made here, or as encoded sources hold them. */
  bool isStored = false;
  /** Of layout Rows: the scale of each row, in place of its elements. */
  bool isScales = false;
  size_t k = 0;
  /** For each physical column the row of the stacked sources, or −1 for zeros. */
  std::vector<int32_t> rowMap;
  std::vector<PackSource> sources;
  /** k factors, or none. */
  std::vector<float> columnScale;
  uint8_t *target = nullptr;
};

constexpr size_t VNNI_DEPTH = 32;
/** Columns of the widest panel. */
constexpr size_t MAX_PANEL = 32;
/** Columns of a panel of quads. */
constexpr size_t QUAD_COLUMNS = 32;

/** Adjacent columns in one panel: a cache line for each k, or for each pair of k (ir/packing.ts, panelColumns). */
inline size_t panelColumns(const PackJob &job) {
  if (job.layout == PackJob::Layout::Quads) return QUAD_COLUMNS;
  return job.layout == PackJob::Layout::Vnni ? 16 : 64 / job.format->bytes;
}

/** Bytes of the packed result. */
size_t packedBytes(const PackJob &job);
/** Panels of a job: independent pieces of work. */
inline size_t panelsOf(const PackJob &job) {
  return (job.rowMap.size() + panelColumns(job) - 1) / panelColumns(job);
}
/** Packs one panel. Every row number in rowMap must lie inside the sources. */
void packPanel(const PackJob &job, size_t panel);
/** `count` elements of a row of a source, from column `from`, as f32. */
void loadRow(const PackSource &source, size_t k, size_t row, size_t from, size_t count, float *out);

/** A row of the stacked sources. */
struct RowRef {
  const PackSource *source = nullptr;  // null: zeros
  size_t row = 0;
};
RowRef findRow(const PackJob &job, size_t column);

/** By name; null if there is none. */
const QuadFormat *findQuadFormat(const std::string &name);
/** Elements of a unit along k, which divide k; bytes of a panel. */
size_t quadDepth(const QuadFormat &format);
size_t quadPanelBytes(const QuadFormat &format, size_t k);
/** Whether a matrix is stored in blocks of the format. */
bool holdsBlocks(const QuadFormat &format, const Encoded &matrix);
/** Whether the format has a scale for whole rows, which is kept elsewhere. */
bool hasWholeRows(const QuadFormat &format);
/**
 * The scale of a row of codes of 8 bits: the stored one, or its largest magnitude / 127. The row's codes, −128 … 127,
 * go to `codes` unless it is null. Throws CodedError, WEIGHTS_DAMAGED, for an invalid stored scale.
 */
float codeRow(const PackJob &job, const RowRef &ref, int8_t *codes);
/** Packs one panel of quads. Throws CodedError, WEIGHTS_DAMAGED, for a scale that is not finite. */
void packQuads(const PackJob &job, size_t panel);

}  // namespace tw
#endif
