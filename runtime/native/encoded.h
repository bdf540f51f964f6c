// Matrices whose elements are codes with scales, or blocks that hold both (ir/encoding.ts), as f32.
#ifndef TILEWRIGHT_ENCODED_H
#define TILEWRIGHT_ENCODED_H
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tw {

enum class CodeType { U2, U4, U8, I8, E4M3, E5M2, E2M1 };
enum class ScaleType { F32, F16, BF16, E8M0 };

/** A matrix of codes, several in a word. Strides count words. */
struct CodeGrid {
  const uint8_t *data = nullptr;  // may be unaligned
  CodeType type = CodeType::U4;
  unsigned bits = 4;
  size_t wordBytes = 4;
  /** Codes in a word: neighbours in a row, or in a column. */
  size_t inWord = 8;
  bool isAlongRow = true;
  /** Neighbours lie from the lowest bits of a word on. */
  bool isInOrder = true;
  size_t rowStride = 0, columnStride = 1;
  /** Bits below each of the neighbours. */
  uint8_t shifts[32] = {};
};

struct ScaleGrid {
  const uint8_t *data = nullptr;
  ScaleType type = ScaleType::F32;
  size_t blockRows = 1, blockColumns = 1;
  size_t rowStride = 0, columnStride = 1;
};

/** Blocks of ggml. Each consists of units of 32 elements. */
struct BlockFormat {
  const char *name;
  size_t units;
  size_t bytes;
  /** Elements of a unit of a block; false where a scale is not finite. */
  bool (*decode)(const uint8_t *block, size_t unit, float *out);
};
constexpr size_t BLOCK_UNIT = 32;
/** By name; null if there is none. */
const BlockFormat *findBlockFormat(const std::string &name);

/** What is read of a matrix: values; codes as f32; scales with zero points in their lowest byte; a row's scale. */
enum class EncodedReads { Values, Codes, Scales, RowScales };

/** A [rows, k] matrix. Every part lies inside the memory of an owner, and groups are columns of scales. */
struct Encoded {
  std::string name;  // for messages
  size_t rows = 0, k = 0;
  /** Columns of the matrix that is stored, and that of them which is column 0 here. */
  size_t storedColumns = 0, firstColumn = 0;
  /** Null: codes with scales. */
  const BlockFormat *block = nullptr;
  const uint8_t *blocks = nullptr;
  CodeGrid codes;
  ScaleGrid scales;
  bool hasZeros = false;
  CodeGrid zeros;
  /** Added to a stored zero point modulo its range; or the zero point of all codes. */
  int32_t zero = 0;
  /** The group of each of the k columns, if they are not in order: then column c is in group c / blockColumns. */
  std::vector<int32_t> groups;
  EncodedReads reads = EncodedReads::Values;
  /** Scales: columns that one of those read is for; it divides those of a stored one, and k. */
  size_t group = 0;
  /** Elements of a row that are read. */
  size_t readColumns() const {
    return reads == EncodedReads::Scales ? k / group : reads == EncodedReads::RowScales ? 1 : k;
  }
  /** Another for every matrix of the process. */
  uint64_t id = 0;
  std::vector<std::shared_ptr<const void>> owners;
  /** Whether neighbours in a row are in different cache lines: then several rows are best decoded together. */
  bool isScattered() const { return block == nullptr && codes.wordBytes == 4 && codes.columnStride != 1; }
};

/** Throws CodedError, WEIGHTS_DAMAGED: the scale of an element is `what`. */
[[noreturn]] void failScale(const Encoded &matrix, size_t row, size_t column, const std::string &what);

/** Most rows and columns of a tile. */
constexpr size_t TILE_ROWS = 32, TILE_COLUMNS = 128;

/**
 * Columns from `from` on of neighbouring rows, each `stride` elements behind the one before: exact values of the
 * formula, rounded to f32 once. At most TILE_ROWS rows of TILE_COLUMNS. Throws CodedError, WEIGHTS_DAMAGED, for a scale
 * that is zero, infinite or no number.
 */
void decodeTile(const Encoded &matrix, size_t row, size_t rows, size_t from, size_t count, float *out, size_t stride);
/** Whether elements are codes of a byte with signs, `type`, times one scale for each row. */
bool hasRowScales(const Encoded &matrix, CodeType type);
/** The codes of such a row, as they are stored, and its scale. Throws as decodeTile does. */
void copyCodes(const Encoded &matrix, size_t row, int8_t *out);
float rowScale(const Encoded &matrix, size_t row);
/** `count` elements of a row from column `from`. */
void decodeRow(const Encoded &matrix, size_t row, size_t from, size_t count, float *out);
/** `count` elements from flat index `first`, by rows. */
void decodeRange(const Encoded &matrix, size_t first, size_t count, float *out);

}  // namespace tw
#endif
