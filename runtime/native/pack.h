// Weights from the checkpoint's layout into the one that kernels read (ir/kernel.ts, WeightDecl).
#ifndef TILEWRIGHT_PACK_H
#define TILEWRIGHT_PACK_H
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tw {

enum class DType { F32, F16, BF16, I32 };
constexpr size_t bytesOf(DType dtype) { return dtype == DType::F32 || dtype == DType::I32 ? 4 : 2; }

/** A [rows, k] matrix: bytes in memory, or values made up from a counter, or one value throughout. */
struct PackSource {
  enum class Kind { Memory, Random, Constant };
  Kind kind = Kind::Memory;
  DType dtype = DType::F32;
  size_t rows = 0;
  const uint8_t *data = nullptr;  // may be unaligned
  uint64_t seed = 0;
  float factor = 0;  // standard deviation × √3 / 65536
  float value = 0;
};

struct PackJob {
  enum class Layout { Rows, Panels, Vnni };
  Layout layout = Layout::Panels;
  DType dtype = DType::F32;
  size_t k = 0;
  /** For each physical column the row of the stacked sources, or −1 for zeros. */
  std::vector<int32_t> rowMap;
  std::vector<PackSource> sources;
  /** k factors, or none. */
  std::vector<float> columnScale;
  uint8_t *target = nullptr;
};

constexpr size_t PANEL = 16;
constexpr size_t VNNI_DEPTH = 32;

/** Bytes of the packed result. */
size_t packedBytes(const PackJob &job);
/** Panels of a job: independent pieces of work. */
inline size_t panelsOf(const PackJob &job) { return (job.rowMap.size() + PANEL - 1) / PANEL; }
/** Packs one panel. Every row number in rowMap must lie inside the sources. */
void packPanel(const PackJob &job, size_t panel);
/** `count` elements of a row of a source, from column `from`, as f32. */
void loadRow(const PackSource &source, size_t k, size_t row, size_t from, size_t count, float *out);

}  // namespace tw
#endif
