#include "pack.h"

#include <algorithm>
#include <cstring>

#include "encoded.h"
#include "halves.h"

namespace tw {
namespace {

/** Columns of k converted at a time: the rows of a panel stay in L1. */
constexpr size_t CHUNK = 128;

/** Round to nearest, ties to even; a NaN stays one (its top mantissa bit is set, so that truncation cannot lose it). */
inline uint16_t toBf16(float value) {
  const uint32_t bits = bitsOf(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/** Round to nearest, ties to even; NaN stays NaN, what is too large becomes infinite. */
uint16_t toF16(float value) {
  const uint32_t bits = bitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 2^16
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 2^-1 shifts the value so that one unit is 2^-24, rounded by the addition itself.
    const uint32_t subnormal = bitsOf(floatOf(magnitude) + 0.5f) - 0x3f000000u;
    return static_cast<uint16_t>(sign | subnormal);
  }
  const uint32_t rebased = magnitude - 0x38000000u;
  return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
}

inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

TW_CLONES void decodeBf16(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, 2);
    out[i] = floatOf(uint32_t{half} << 16);
  }
}

TW_CLONES void decodeF16(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, 2);
    out[i] = fromF16(half);
  }
}

TW_CLONES void encodeBf16(const float *in, size_t count, uint8_t *out) {
  for (size_t i = 0; i < count; i++) {
    const uint16_t half = toBf16(in[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void encodeF16(const float *in, size_t count, uint8_t *out) {
  for (size_t i = 0; i < count; i++) {
    const uint16_t half = toF16(in[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

TW_CLONES void roundBf16(float *values, size_t count) {
  for (size_t i = 0; i < count; i++) values[i] = floatOf(uint32_t{toBf16(values[i])} << 16);
}

void roundF16(float *values, size_t count) {
  for (size_t i = 0; i < count; i++) values[i] = fromF16(toF16(values[i]));
}

void decodeF32(const uint8_t *in, size_t count, float *out) { std::memcpy(out, in, count * 4); }
void encodeF32(const float *in, size_t count, uint8_t *out) { std::memcpy(out, in, count * 4); }
void roundF32(float *, size_t) {}

TW_CLONES void multiply(float *values, const float *factors, size_t count) {
  for (size_t i = 0; i < count; i++) values[i] *= factors[i];
}

/** Nearly normal: the sum of four uniform 16-bit parts of a hash of (seed, index), at most 3.46 deviations from 0. */
TW_CLONES void randomValues(uint64_t start, uint64_t index, size_t count, float factor, float *out) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t h = mix(start + (index + i) * 0x9e3779b97f4a7c15u);
    const auto sum = static_cast<int32_t>((h & 0xffff) + ((h >> 16) & 0xffff) + ((h >> 32) & 0xffff) + (h >> 48));
    out[i] = static_cast<float>(sum - 131070) * factor;
  }
}

/** out[i][lane] = in[lane][i] for words of a panel's rows, which lie `stride` bytes apart. */
template <typename Word, size_t LANES>
inline void transpose(const uint8_t *in, size_t stride, size_t count, uint8_t *out) {
  for (size_t i = 0; i < count; i++) {
    for (size_t lane = 0; lane < LANES; lane++)
      std::memcpy(out + (i * LANES + lane) * sizeof(Word), in + lane * stride + i * sizeof(Word), sizeof(Word));
  }
}

TW_CLONES void transpose32(const uint8_t *in, size_t stride, size_t count, uint8_t *out) {
  transpose<uint32_t, 16>(in, stride, count, out);
}

TW_CLONES void transpose16(const uint8_t *in, size_t stride, size_t count, uint8_t *out) {
  transpose<uint16_t, 32>(in, stride, count, out);
}

/** Elements of a row of a matrix in tiles, from column `from`. */
void loadTiles(const PackSource &source, size_t row, size_t from, size_t count, float *out) {
  const size_t size = source.format->bytes;
  for (const PackTile &tile : source.tiles) {
    const size_t begin = std::max(from, tile.column);
    const size_t end = std::min(from + count, tile.column + tile.columns);
    if (row < tile.row || row >= tile.row + tile.rows || begin >= end) continue;
    const size_t first = (row - tile.row) * tile.rowStride + (begin - tile.column) * tile.columnStride;
    const uint8_t *in = tile.data + first * size;
    if (tile.columnStride == 1) {
      source.format->decode(in, end - begin, out + (begin - from));
      continue;
    }
    // Neighbouring rows of a panel read neighbouring elements: what they share stays in the cache.
    uint8_t line[CHUNK * sizeof(float)];
    for (size_t i = begin; i < end; i += CHUNK) {
      const size_t part = std::min(CHUNK, end - i);
      for (size_t j = 0; j < part; j++, in += tile.columnStride * size) std::memcpy(line + j * size, in, size);
      source.format->decode(line, part, out + (i - from));
    }
  }
}

void loadChunk(const PackJob &job, const RowRef &ref, size_t from, size_t count, float *out) {
  if (ref.source == nullptr) {
    std::fill(out, out + count, 0.0f);
    return;
  }
  loadRow(*ref.source, job.k, ref.row, from, count, out);
  if (!job.columnScale.empty()) multiply(out, job.columnScale.data() + from, count);
}

static_assert(CHUNK == TILE_COLUMNS && MAX_PANEL <= TILE_ROWS, "a panel is decoded as a tile");

/** Lanes from `lane` on whose rows are neighbours in one matrix that is decoded in tiles; 0 if its row is in none. */
size_t encodedRun(const RowRef *rows, size_t lane, size_t end) {
  const PackSource *source = rows[lane].source;
  if (source == nullptr || source->kind != PackSource::Kind::Encoded || !source->encoded->isScattered()) return 0;
  size_t count = 1;
  while (lane + count < end && rows[lane + count].source == source && rows[lane + count].row == rows[lane].row + count)
    count++;
  return count;
}

/** Rows that are loaded together: at least one. Lanes of the others are `CHUNK` elements behind it. */
size_t loadChunks(const PackJob &job, const RowRef *rows, size_t lane, size_t end, size_t from, size_t count,
                  float *out) {
  const size_t run = encodedRun(rows, lane, end);
  if (run == 0) {
    loadChunk(job, rows[lane], from, count, out);
    return 1;
  }
  decodeTile(*rows[lane].source->encoded, rows[lane].row, run, from, count, out, CHUNK);
  for (size_t i = 0; i < run && !job.columnScale.empty(); i++)
    multiply(out + i * CHUNK, job.columnScale.data() + from, count);
  return run;
}

void packRows(const PackJob &job, size_t panel) {
  alignas(64) float values[MAX_PANEL * CHUNK];
  const size_t size = job.format->bytes;
  const size_t first = panel * panelColumns(job);
  const size_t end = std::min(job.rowMap.size() - first, panelColumns(job));
  RowRef rows[MAX_PANEL];
  for (size_t lane = 0; lane < end; lane++) rows[lane] = findRow(job, first + lane);
  for (size_t lane = 0; lane < end;) {
    const RowRef &ref = rows[lane];
    uint8_t *out = job.target + (first + lane) * job.k * size;
    if (ref.source != nullptr && ref.source->kind == PackSource::Kind::Memory && ref.source->format == job.format &&
        job.columnScale.empty()) {
      std::memcpy(out, ref.source->data + ref.row * job.k * size, job.k * size);
      lane++;
      continue;
    }
    size_t run = 1;
    for (size_t from = 0; from < job.k; from += CHUNK) {
      const size_t count = std::min(CHUNK, job.k - from);
      run = loadChunks(job, rows, lane, end, from, count, values);
      for (size_t i = 0; i < run; i++)
        job.format->encode(values + i * CHUNK, count, out + (i * job.k + from) * size);
    }
    lane += run;
  }
}

/** The scales of rows of codes, in f32. */
void packScales(const PackJob &job, size_t panel) {
  const size_t first = panel * panelColumns(job);
  const size_t end = std::min(job.rowMap.size() - first, panelColumns(job));
  for (size_t lane = 0; lane < end; lane++) {
    const float scale = codeRow(job, findRow(job, first + lane), nullptr);
    std::memcpy(job.target + (first + lane) * sizeof(float), &scale, sizeof(float));
  }
}

}  // namespace

const StorageFormat FORMATS[FORMAT_COUNT] = {
    {4, decodeF32, encodeF32, roundF32},
    {2, decodeF16, encodeF16, roundF16},
    {2, decodeBf16, encodeBf16, roundBf16},
};

RowRef findRow(const PackJob &job, size_t column) {
  if (column >= job.rowMap.size() || job.rowMap[column] < 0) return {};
  auto row = static_cast<size_t>(job.rowMap[column]);
  for (const PackSource &source : job.sources) {
    if (row < source.rows) return {&source, row};
    row -= source.rows;
  }
  return {};
}

size_t packedBytes(const PackJob &job) {
  if (job.layout == PackJob::Layout::Quads) return panelsOf(job) * quadPanelBytes(*job.quads, job.k);
  const size_t columns = panelsOf(job) * panelColumns(job);
  const size_t bytes = job.format->bytes;
  switch (job.layout) {
    case PackJob::Layout::Rows: return job.rowMap.size() * (job.isScales ? 1 : job.k) * bytes;
    case PackJob::Layout::Panels: return columns * job.k * bytes;
    case PackJob::Layout::Quads: break;
    case PackJob::Layout::Vnni: return columns * ((job.k + VNNI_DEPTH - 1) / VNNI_DEPTH * VNNI_DEPTH) * bytes;
  }
  return 0;
}

void loadRow(const PackSource &source, size_t k, size_t row, size_t from, size_t count, float *out) {
  const size_t index = row * k + from;
  switch (source.kind) {
    case PackSource::Kind::Constant:
      std::fill(out, out + count, source.value);
      source.format->round(out, count);
      return;
    case PackSource::Kind::Random:
      randomValues(mix(source.seed), index, count, source.factor, out);
      source.format->round(out, count);
      return;
    case PackSource::Kind::Tiles:
      loadTiles(source, row, from, count, out);
      return;
    case PackSource::Kind::Encoded:
      decodeRow(*source.encoded, row, from, count, out);
      return;
    case PackSource::Kind::Memory:
      source.format->decode(source.data + index * source.format->bytes, count, out);
      return;
  }
}

void packPanel(const PackJob &job, size_t panel) {
  if (job.isScales) return packScales(job, panel);
  if (job.layout == PackJob::Layout::Rows) return packRows(job, panel);
  if (job.layout == PackJob::Layout::Quads) return packQuads(job, panel);
  const bool isVnni = job.layout == PackJob::Layout::Vnni;
  const size_t depth = isVnni ? (job.k + VNNI_DEPTH - 1) / VNNI_DEPTH * VNNI_DEPTH : job.k;
  const size_t lanes = panelColumns(job);
  RowRef rows[MAX_PANEL];
  for (size_t lane = 0; lane < lanes; lane++) rows[lane] = findRow(job, panel * lanes + lane);

  alignas(64) float values[MAX_PANEL * CHUNK];
  const size_t size = job.format->bytes;
  alignas(64) uint8_t lines[16 * CHUNK * sizeof(float)];  // encoded: 16 columns of f32, or 32 of 16 bits
  uint8_t *out = job.target + panel * lanes * depth * size;
  for (size_t from = 0; from < depth; from += CHUNK) {
    const size_t span = std::min(CHUNK, depth - from);  // even for vnni, where depth is a multiple of 32
    const size_t count = from < job.k ? std::min(span, job.k - from) : 0;
    for (size_t lane = 0; lane < lanes;) {
      const size_t run = count > 0 ? loadChunks(job, rows, lane, lanes, from, count, values) : 1;
      for (size_t i = 0; i < run; i++) {
        float *line = values + i * CHUNK;
        std::fill(line + count, line + span, 0.0f);
        job.format->encode(line, span, lines + (lane + i) * CHUNK * size);
      }
      lane += run;
    }
    // What stays together: an element, or the two that vnni keeps beside each other.
    const size_t unit = isVnni ? 2 * size : size;
    const auto transposed = unit == 4 ? transpose32 : transpose16;
    transposed(lines, CHUNK * size, span * size / unit, out + from * lanes * size);
  }
}

}  // namespace tw
