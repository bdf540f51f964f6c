#include "encoded.h"

#include <cmath>

#include "halves.h"
#include "support.h"

namespace tw {

void failScale(const Encoded &matrix, size_t row, size_t column, const std::string &what) {
  throw CodedError("Tensor " + matrix.name + ": the scale of row " + std::to_string(row) + ", column " +
                       std::to_string(column) + " is " + what,
                   "WEIGHTS_DAMAGED", "decode", false);
}

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

/** Sign, 2 bits of exponent with bias 1, one of the fraction. */
TW_CLONES void loadE2M1(const uint8_t *in, size_t count, float *out) {
  for (size_t i = 0; i < count; i++) {
    const uint32_t sign = (uint32_t{in[i]} & 8u) << 28, magnitude = in[i] & 7u;
    const uint32_t half = (magnitude & 1u) * 0x3f000000u;
    out[i] = floatOf(sign | (magnitude < 2 ? half : (magnitude << 22) + (126u << 23)));
  }
}

void loadBytes(CodeType type, const uint8_t *in, size_t count, float *out) {
  switch (type) {
    case CodeType::U2:
    case CodeType::U4:
    case CodeType::U8: return loadU8(in, count, out);
    case CodeType::I8: return loadI8(in, count, out);
    case CodeType::E4M3: return loadE4M3(in, count, out);
    case CodeType::E5M2: return loadE5M2(in, count, out);
    case CodeType::E2M1: return loadE2M1(in, count, out);
  }
}

/** Codes in whole words that lie one after another, `IN_WORD` each. */
template <size_t IN_WORD>
inline void unpackWords(const uint8_t *in, const uint8_t *shifts, size_t words, uint8_t *out) {
  constexpr uint32_t MASK = (1u << (32 / IN_WORD)) - 1u;
  for (size_t word = 0; word < words; word++) {
    const uint32_t bits = wordAt(in + 4 * word);
    for (size_t i = 0; i < IN_WORD; i++) out[word * IN_WORD + i] = static_cast<uint8_t>(bits >> shifts[i] & MASK);
  }
}

/** Codes of 4 bits in order, lower halves of bytes first. */
TW_CLONES void unpackHalves(const uint8_t *in, size_t bytes, uint8_t *out) {
  for (size_t i = 0; i < bytes; i++) {
    out[2 * i] = in[i] & 15;
    out[2 * i + 1] = in[i] >> 4;
  }
}

TW_CLONES void unpackRow(const uint8_t *in, const CodeGrid &grid, size_t words, uint8_t *out) {
  if (grid.isInOrder && grid.bits == 8) std::memcpy(out, in, 4 * words);
  else if (grid.isInOrder && grid.bits == 4) unpackHalves(in, 4 * words, out);
  else if (grid.inWord == 8) unpackWords<8>(in, grid.shifts, words, out);
  else if (grid.inWord == 4) unpackWords<4>(in, grid.shifts, words, out);
  else unpackWords<16>(in, grid.shifts, words, out);
}

/** One code of each word. */
TW_CLONES void unpackColumn(const uint8_t *in, unsigned shift, uint32_t mask, size_t count, uint8_t *out) {
  for (size_t i = 0; i < count; i++) out[i] = static_cast<uint8_t>(wordAt(in + 4 * i) >> shift & mask);
}

uint8_t codeAt(const CodeGrid &grid, size_t row, size_t column) {
  const size_t packed = grid.isAlongRow ? column : row;
  const size_t wordRow = grid.isAlongRow ? row : row / grid.inWord;
  const size_t wordColumn = grid.isAlongRow ? column / grid.inWord : column;
  const uint8_t *at = grid.data + (wordRow * grid.rowStride + wordColumn * grid.columnStride) * grid.wordBytes;
  const uint32_t word = grid.wordBytes == 1 ? *at : wordAt(at);
  return static_cast<uint8_t>(word >> grid.shifts[packed % grid.inWord] & ((1u << grid.bits) - 1u));
}

/** The words of a tile: those of a row of words lie together. */
struct WordTile {
  const uint8_t *words = nullptr;
  /** Bytes from a row of words to the next. */
  size_t stride = 0;
  uint32_t gathered[TILE_ROWS * (TILE_COLUMNS + 2)];

  WordTile(const CodeGrid &grid, size_t row, size_t rows, size_t from, size_t count) {
    const size_t first = grid.isAlongRow ? row : row / grid.inWord;
    const size_t wordRows = grid.isAlongRow ? rows : (row + rows - 1) / grid.inWord - first + 1;
    const size_t column = grid.isAlongRow ? from / grid.inWord : from;
    const size_t columns = grid.isAlongRow ? (from + count - 1) / grid.inWord - column + 1 : count;
    const uint8_t *in = grid.data + 4 * (first * grid.rowStride + column * grid.columnStride);
    if (grid.columnStride == 1) {
      words = in;
      stride = 4 * grid.rowStride;
      return;
    }
    // Every cache line of the source is read once: its words are apart by a power of two, which caches hold badly.
    for (size_t i = 0; i < columns; i++) {
      for (size_t lane = 0; lane < wordRows; lane++)
        gathered[lane * columns + i] = wordAt(in + 4 * (lane * grid.rowStride + i * grid.columnStride));
    }
    words = reinterpret_cast<const uint8_t *>(gathered);
    stride = 4 * columns;
  }
};

/** Codes of a row of a tile of words of 4 bytes. `row` counts from the first row of the tile's words. */
void unpackTile(const CodeGrid &grid, const WordTile &tile, size_t row, size_t from, size_t count, uint8_t *codes) {
  const uint32_t mask = (1u << grid.bits) - 1u;
  if (!grid.isAlongRow) {
    const uint8_t *words = tile.words + row / grid.inWord * tile.stride;
    return unpackColumn(words, grid.shifts[row % grid.inWord], mask, count, codes);
  }
  const uint8_t *words = tile.words + row * tile.stride;
  const size_t skipped = from % grid.inWord;
  if (skipped == 0) unpackRow(words, grid, count / grid.inWord, codes);
  const size_t done = skipped == 0 ? count / grid.inWord * grid.inWord : 0;
  for (size_t i = done; i < count; i++) {
    const size_t at = skipped + i;
    codes[i] = static_cast<uint8_t>(wordAt(words + 4 * (at / grid.inWord)) >> grid.shifts[at % grid.inWord] & mask);
  }
}

/** Values of codes, as f32. */
void loadCodes(const CodeGrid &grid, size_t row, size_t rows, size_t from, size_t count, float *out, size_t stride) {
  if (grid.wordBytes == 1 && grid.inWord == 1 && grid.columnStride == 1) {
    for (size_t lane = 0; lane < rows; lane++)
      loadBytes(grid.type, grid.data + (row + lane) * grid.rowStride + from, count, out + lane * stride);
    return;
  }
  uint8_t codes[TILE_COLUMNS];
  if (grid.wordBytes == 1) {
    for (size_t lane = 0; lane < rows; lane++) {
      for (size_t i = 0; i < count; i++) codes[i] = codeAt(grid, row + lane, from + i);
      loadBytes(grid.type, codes, count, out + lane * stride);
    }
    return;
  }
  const WordTile tile(grid, row, rows, from, count);
  const size_t above = grid.isAlongRow ? 0 : row % grid.inWord;
  for (size_t lane = 0; lane < rows; lane++) {
    unpackTile(grid, tile, above + lane, from, count, codes);
    loadBytes(grid.type, codes, count, out + lane * stride);
  }
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

/** Scales and zero points of all groups of a row, where columns are in another order. */
struct RowGroups {
  uint64_t id = 0;
  size_t row = 0;
  std::vector<float> scales, zeros;
};

/** Of a row, kept for the thread: rows of a tile are decoded some columns at a time. */
const RowGroups &groupsOf(const Encoded &matrix, size_t row) {
  thread_local RowGroups kept[TILE_ROWS];
  RowGroups &own = kept[row % TILE_ROWS];
  if (own.id == matrix.id && own.row == row) return own;
  const size_t width = matrix.scales.blockColumns, count = (matrix.storedColumns + width - 1) / width;
  own.id = 0;
  own.scales.resize(count);
  own.zeros.resize(count);
  for (size_t group = 0; group < count; group++) {
    const Affine affine = affineOf(matrix, row, group, group * width);
    own.scales[group] = affine.scale;
    own.zeros[group] = affine.zero;
  }
  own.id = matrix.id;
  own.row = row;
  return own;
}

TW_CLONES void applyGroups(const int32_t *groups, const float *zeros, const float *scales, size_t count,
                           float *values) {
  for (size_t i = 0; i < count; i++) values[i] = (values[i] - zeros[groups[i]]) * scales[groups[i]];
}

void applyScales(const Encoded &matrix, size_t row, size_t from, size_t count, float *out) {
  if (!matrix.groups.empty()) {
    const RowGroups &groups = groupsOf(matrix, row);
    return applyGroups(matrix.groups.data() + from, groups.zeros.data(), groups.scales.data(), count, out);
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
  const uint8_t *blocks = matrix.blocks + row * (matrix.storedColumns / width) * format.bytes;
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

/** Words of a scale and its zero point, as floats' bits. */
void readScales(const Encoded &matrix, size_t first, size_t count, float *out) {
  const size_t columns = matrix.readColumns();
  for (size_t i = 0; i < count; i++) {
    const size_t row = (first + i) / columns, column = (first + i) % columns * matrix.group;
    const Affine affine = affineOf(matrix, row, column / matrix.scales.blockColumns, column);
    const uint32_t scale = bitsOf(affine.scale), zero = static_cast<uint32_t>(static_cast<int32_t>(affine.zero));
    if ((scale & 255u) != 0 || zero > 15u) failScale(matrix, row, column, "none of 16 bits");
    const uint32_t word = scale | zero;
    std::memcpy(out + i, &word, 4);
  }
}

void decodeTile(const Encoded &matrix, size_t row, size_t rows, size_t from, size_t count, float *out, size_t stride) {
  from += matrix.firstColumn;
  if (matrix.block == nullptr) loadCodes(matrix.codes, row, rows, from, count, out, stride);
  for (size_t lane = 0; lane < rows; lane++) {
    if (matrix.reads == EncodedReads::Codes) continue;
    if (matrix.block == nullptr) applyScales(matrix, row + lane, from, count, out + lane * stride);
    else decodeBlocks(matrix, row + lane, from, count, out + lane * stride);
  }
}

bool hasRowScales(const Encoded &matrix, CodeType type) {
  const CodeGrid &codes = matrix.codes;
  return matrix.block == nullptr && matrix.k == matrix.storedColumns && codes.type == type && codes.wordBytes == 1 &&
         codes.columnStride == 1 && !matrix.hasZeros && matrix.zero == 0 && matrix.groups.empty() &&
         matrix.scales.blockColumns >= matrix.k;
}

void copyCodes(const Encoded &matrix, size_t row, int8_t *out) {
  std::memcpy(out, matrix.codes.data + row * matrix.codes.rowStride, matrix.k);
}

float rowScale(const Encoded &matrix, size_t row) { return affineOf(matrix, row, 0, 0).scale; }

void decodeRow(const Encoded &matrix, size_t row, size_t from, size_t count, float *out) {
  for (size_t done = 0; done < count; done += TILE_COLUMNS)
    decodeTile(matrix, row, 1, from + done, std::min(TILE_COLUMNS, count - done), out + done, TILE_COLUMNS);
}

void decodeRange(const Encoded &matrix, size_t first, size_t count, float *out) {
  if (matrix.reads == EncodedReads::Scales) return readScales(matrix, first, count, out);
  if (matrix.reads == EncodedReads::RowScales) {
    for (size_t i = 0; i < count; i++) out[i] = rowScale(matrix, first + i);
    return;
  }
  for (size_t done = 0; done < count;) {
    const size_t row = (first + done) / matrix.k, column = (first + done) % matrix.k;
    const size_t rows = std::min((count - done) / matrix.k, TILE_ROWS);
    if (column != 0 || rows == 0 || !matrix.isScattered()) {
      const size_t part = std::min(matrix.k - column, count - done);
      decodeRow(matrix, row, column, part, out + done);
      done += part;
      continue;
    }
    for (size_t from = 0; from < matrix.k; from += TILE_COLUMNS)
      decodeTile(matrix, row, rows, from, std::min(TILE_COLUMNS, matrix.k - from), out + done + from, matrix.k);
    done += rows * matrix.k;
  }
}

}  // namespace tw
