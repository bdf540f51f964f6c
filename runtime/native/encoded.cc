#include "encoded.h"

#include <cmath>

#include "halves.h"
#include "support.h"

namespace tw {
namespace {

inline uint32_t wordAt(const uint8_t *at) {
  uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}

/** Sign, 4 bits of exponent with bias 7, 3 of the fraction; the largest magnitude is NaN. */
inline float fromE4M3(uint8_t code) {
  const uint32_t sign = (uint32_t{code} & 0x80u) << 24;
  const uint32_t magnitude = uint32_t{code} & 0x7fu;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t subnormal = bitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f);
  return floatOf(sign | (magnitude == 0x7fu ? 0x7fc00000u : magnitude < 8 ? subnormal : normal));
}

TW_CLONES void loadU8(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) out[i] = static_cast<float>(in[i]);
}

TW_CLONES void loadI8(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) out[i] = static_cast<float>(static_cast<int8_t>(in[i]));
}

TW_CLONES void loadE4M3(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) out[i] = fromE4M3(in[i]);
}

TW_CLONES void loadE5M2(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) out[i] = fromF16(static_cast<uint16_t>(in[i] << 8));
}

void loadBytes(CodeType type, const uint8_t *in, size_t count, float *out) {
  switch (type) {
    case CodeType::U2:
    case CodeType::U4:
    case CodeType::U8: return loadU8(in, count, out);
    case CodeType::I8: return loadI8(in, count, out);
    case CodeType::E4M3: return loadE4M3(in, count, out);
    case CodeType::E5M2: return loadE5M2(in, count, out);
  }
}

/** Codes in whole words, `IN_WORD` each; words lie `step` bytes apart. */
template <size_t IN_WORD>
inline void unpackWords(const uint8_t *in, size_t step, const uint8_t *shifts, size_t words, uint8_t *out) {
  constexpr uint32_t MASK = (1u << (32 / IN_WORD)) - 1u;
  for (size_t word = 0; word < words; word++) {
    const uint32_t bits = wordAt(in + word * step);
    for (size_t i = 0; i < IN_WORD; i++)
      out[word * IN_WORD + i] = static_cast<uint8_t>(bits >> shifts[i] & MASK);
  }
}

TW_CLONES void unpackNibbles(const uint8_t *in, size_t step, const uint8_t *shifts, size_t words, uint8_t *out) {
  unpackWords<8>(in, step, shifts, words, out);
}

/** One code of each word. */
TW_CLONES void unpackColumn(const uint8_t *in, size_t step, unsigned shift, uint32_t mask, size_t count, uint8_t *out) {
  for (size_t i = 0; i < count; i++) out[i] = static_cast<uint8_t>(wordAt(in + i * step) >> shift & mask);
}

uint8_t codeAt(const CodeGrid &grid, size_t row, size_t column) {
  const size_t packed = grid.isAlongRow ? column : row;
  const size_t wordRow = grid.isAlongRow ? row : row / grid.inWord;
  const size_t wordColumn = grid.isAlongRow ? column / grid.inWord : column;
  const uint8_t *at = grid.data + (wordRow * grid.rowStride + wordColumn * grid.columnStride) * grid.wordBytes;
  const uint32_t word = grid.wordBytes == 1 ? *at : wordAt(at);
  return static_cast<uint8_t>(word >> grid.shifts[packed % grid.inWord] & ((1u << grid.bits) - 1u));
}

constexpr size_t CODES_AT_ONCE = 512;

/** Values of codes, as f32. */
void loadCodes(const CodeGrid &grid, size_t row, size_t from, size_t count, float *out) {
  if (grid.wordBytes == 1 && grid.inWord == 1 && grid.columnStride == 1)
    return loadBytes(grid.type, grid.data + row * grid.rowStride + from, count, out);
  uint8_t codes[CODES_AT_ONCE];
  for (size_t done = 0; done < count;) {
    const size_t column = from + done;
    const size_t part = std::min(CODES_AT_ONCE, count - done);
    size_t loaded = 1;
    if (grid.wordBytes == 4 && !grid.isAlongRow) {
      const size_t word = row / grid.inWord * grid.rowStride + column * grid.columnStride;
      unpackColumn(grid.data + 4 * word, 4 * grid.columnStride, grid.shifts[row % grid.inWord],
                   (1u << grid.bits) - 1u, part, codes);
      loaded = part;
    } else if (grid.wordBytes == 4 && column % grid.inWord == 0 && part >= grid.inWord) {
      const size_t words = part / grid.inWord;
      const uint8_t *in = grid.data + 4 * (row * grid.rowStride + column / grid.inWord * grid.columnStride);
      const size_t step = 4 * grid.columnStride;
      if (grid.inWord == 8) unpackNibbles(in, step, grid.shifts, words, codes);
      else if (grid.inWord == 4) unpackWords<4>(in, step, grid.shifts, words, codes);
      else unpackWords<16>(in, step, grid.shifts, words, codes);
      loaded = words * grid.inWord;
    } else {
      codes[0] = codeAt(grid, row, column);
    }
    loadBytes(grid.type, codes, loaded, out + done);
    done += loaded;
  }
}

[[noreturn]] void failScale(const Encoded &matrix, size_t row, size_t column, const std::string &what) {
  throw CodedError("Tensor " + matrix.name + ": the scale of row " + std::to_string(row) + ", column " +
                       std::to_string(column) + " is " + what,
                   "WEIGHTS_DAMAGED", "decode", false);
}

float scaleAt(const Encoded &matrix, size_t row, size_t group) {
  const ScaleGrid &grid = matrix.scales;
  const size_t index = row / grid.blockRows * grid.rowStride + group * grid.columnStride;
  uint16_t half;
  switch (grid.type) {
    case ScaleType::F32: return floatOf(wordAt(grid.data + 4 * index));
    case ScaleType::F16: std::memcpy(&half, grid.data + 2 * index, 2); return fromF16(half);
    case ScaleType::BF16: std::memcpy(&half, grid.data + 2 * index, 2); return floatOf(uint32_t{half} << 16);
    case ScaleType::E8M0: {
      const uint32_t code = grid.data[index];
      return floatOf(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : code << 23);
    }
  }
  return 0;
}

struct Affine {
  float zero, scale;
};

/** Of a group of a row; `column` is for messages. */
Affine affineOf(const Encoded &matrix, size_t row, size_t group, size_t column) {
  const float scale = scaleAt(matrix, row, group);
  if (!std::isfinite(scale) || scale == 0)
    failScale(matrix, row, column, scale == 0 ? "0" : std::isnan(scale) ? "no number" : "infinite");
  int32_t zero = matrix.zero;
  if (matrix.hasZeros) {
    const CodeGrid &zeros = matrix.zeros;
    const auto code = static_cast<uint32_t>(codeAt(zeros, row / matrix.scales.blockRows, group) + matrix.zero) &
                      ((1u << zeros.bits) - 1u);
    zero = zeros.type == CodeType::I8 ? static_cast<int8_t>(code) : static_cast<int32_t>(code);
  }
  return {static_cast<float>(zero), scale};
}

TW_CLONES void applyAffine(Affine affine, size_t count, float *values) {
  for (size_t i = 0; i < count; i++) values[i] = (values[i] - affine.zero) * affine.scale;
}

void decodeCodes(const Encoded &matrix, size_t row, size_t from, size_t count, float *out) {
  loadCodes(matrix.codes, row, from, count, out);
  if (matrix.groups != nullptr) {
    for (size_t i = 0; i < count; i++) {
      const size_t group = wordAt(matrix.groups + 4 * (from + i));
      applyAffine(affineOf(matrix, row, group, from + i), 1, out + i);
    }
    return;
  }
  const size_t width = matrix.scales.blockColumns;
  for (size_t done = 0; done < count;) {
    const size_t column = from + done, group = column / width;
    const size_t part = std::min((group + 1) * width - column, count - done);
    applyAffine(affineOf(matrix, row, group, column), part, out + done);
    done += part;
  }
}

void decodeBlocks(const Encoded &matrix, size_t row, size_t from, size_t count, float *out) {
  const BlockFormat &format = *matrix.block;
  const size_t width = format.units * BLOCK_UNIT;
  const uint8_t *blocks = matrix.blocks + row * (matrix.k / width) * format.bytes;
  alignas(64) float unit[BLOCK_UNIT];
  for (size_t done = 0; done < count;) {
    const size_t column = from + done, within = column % BLOCK_UNIT;
    const size_t part = std::min(BLOCK_UNIT - within, count - done);
    const bool isWhole = part == BLOCK_UNIT;
    const uint8_t *block = blocks + column / width * format.bytes;
    if (!format.decode(block, column % width / BLOCK_UNIT, isWhole ? out + done : unit))
      failScale(matrix, row, column, "not finite");
    if (!isWhole) std::copy(unit + within, unit + within + part, out + done);
    done += part;
  }
}

}  // namespace

void decodeRow(const Encoded &matrix, size_t row, size_t from, size_t count, float *out) {
  if (matrix.block == nullptr) decodeCodes(matrix, row, from, count, out);
  else decodeBlocks(matrix, row, from, count, out);
}

void decodeRange(const Encoded &matrix, size_t first, size_t count, float *out) {
  for (size_t done = 0; done < count;) {
    const size_t row = (first + done) / matrix.k, column = (first + done) % matrix.k;
    const size_t part = std::min(matrix.k - column, count - done);
    decodeRow(matrix, row, column, part, out + done);
    done += part;
  }
}

}  // namespace tw
