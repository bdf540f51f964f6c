#include "encodedBinding.h"

#include <atomic>

#include "memory.h"

namespace tw {
namespace {

/** An object whose fields are named in messages. */
class Fields {
 public:
  Fields(const Napi::Value &value, std::string what) : object_(objectArg(value, what)), what_(std::move(what)) {}
  Napi::Value get(const char *name) const { return object_.Get(name); }
  std::string path(const char *name) const { return what_ + "." + name; }
  Fields fields(const char *name) const { return {get(name), path(name)}; }
  std::string text(const char *name) const { return stringArg(get(name), path(name)); }
  bool flag(const char *name) const { return booleanArg(get(name), path(name)); }
  size_t extent(const char *name) const {
    return static_cast<size_t>(integerArg(get(name), path(name), 1, MAX_EXTENT));
  }
  int32_t small(const char *name) const { return static_cast<int32_t>(integerArg(get(name), path(name), -255, 255)); }

 private:
  Napi::Object object_;
  std::string what_;
};

size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

/** The first `bytes` bytes of a part; its memory is kept. */
const uint8_t *partAt(Encoded &matrix, const Fields &parts, const char *name, size_t bytes) {
  const Fields part = parts.fields(name);
  auto memory = memoryArg(part.get("memory"), part.path("memory"));
  const size_t offset = sizeArg(part.get("offset"), part.path("offset"));
  memory->requireInside(offset, bytes, parts.path(name));
  const uint8_t *data = memory->data() + offset;
  matrix.owners.push_back(std::move(memory));
  return data;
}

CodeType codeTypeOf(const Fields &grid) {
  static const char *const NAMES[] = {"u2", "u4", "u8", "i8", "e4m3", "e5m2", "e2m1"};
  const std::string name = grid.text("type");
  for (size_t i = 0; i < std::size(NAMES); i++)
    if (name == NAMES[i]) return static_cast<CodeType>(i);
  fail(grid.path("type") + " is no type of codes: " + name);
}

ScaleType scaleTypeOf(const Fields &grid) {
  static const char *const NAMES[] = {"f32", "f16", "bf16", "e8m0"};
  const std::string name = grid.text("type");
  for (size_t i = 0; i < std::size(NAMES); i++)
    if (name == NAMES[i]) return static_cast<ScaleType>(i);
  fail(grid.path("type") + " is no type of scales: " + name);
}

/** A grid of [rows, columns] codes in a part. */
CodeGrid codeGrid(Encoded &matrix, const Fields &fields, const Fields &parts, const char *part, size_t rows,
                  size_t columns) {
  CodeGrid grid;
  grid.type = codeTypeOf(fields);
  const bool hasFourBits = grid.type == CodeType::U4 || grid.type == CodeType::E2M1;
  grid.bits = grid.type == CodeType::U2 ? 2 : hasFourBits ? 4 : 8;
  grid.wordBytes = fields.extent("wordBytes");
  if (grid.wordBytes != 1 && grid.wordBytes != 4) fail(fields.path("wordBytes") + " must be 1 or 4");
  grid.inWord = 8 * grid.wordBytes / grid.bits;
  const std::string along = fields.text("along");
  grid.isAlongRow = along == "row";
  if (!grid.isAlongRow && along != "column") fail(fields.path("along") + " must be row or column, not " + along);
  const Napi::Array places = arrayArg(fields.get("places"), fields.path("places"));
  if (places.Length() != grid.inWord) fail(fields.path("places") + " is not one for each code of a word");
  for (uint32_t i = 0; i < places.Length(); i++) {
    const int64_t place = integerArg(places.Get(i), fields.path("places"), 0, static_cast<int64_t>(grid.inWord) - 1);
    grid.shifts[i] = static_cast<uint8_t>(static_cast<size_t>(place) * grid.bits);
    grid.isInOrder = grid.isInOrder && place == static_cast<int64_t>(i);
  }
  const size_t wordRows = grid.isAlongRow ? rows : ceilDiv(rows, grid.inWord);
  const size_t wordColumns = grid.isAlongRow ? ceilDiv(columns, grid.inWord) : columns;
  const bool isTransposed = fields.flag("isTransposed");
  grid.rowStride = isTransposed ? 1 : wordColumns;
  grid.columnStride = isTransposed ? wordRows : 1;
  grid.data = partAt(matrix, parts, part, product(product(wordRows, wordColumns, "a grid"), grid.wordBytes, "a grid"));
  return grid;
}

[[noreturn]] void failGroups(const Encoded &matrix, const std::string &what) {
  throw CodedError("Tensor " + matrix.name + ": " + what, "WEIGHTS_DAMAGED", "decode", false);
}

/**
 * Each group has the columns that its scales are for: the columns, sorted by group, are those of a plain matrix. Keeps
 * groups only where columns are in another order.
 */
void readGroups(Encoded &matrix, const uint8_t *data, size_t count) {
  std::vector<size_t> sizes(count, 0);
  const size_t width = matrix.scales.blockColumns;
  bool isInOrder = true;
  matrix.groups.resize(matrix.storedColumns);
  std::memcpy(matrix.groups.data(), data, 4 * matrix.storedColumns);
  for (size_t column = 0; column < matrix.storedColumns; column++) {
    const int32_t group = matrix.groups[column];
    if (group < 0 || static_cast<size_t>(group) >= count)
      failGroups(matrix, "column " + std::to_string(column) + " is in group " + std::to_string(group) + " of " +
                             std::to_string(count));
    sizes[static_cast<size_t>(group)]++;
    isInOrder = isInOrder && static_cast<size_t>(group) == column / width;
  }
  for (size_t group = 0; group < count; group++) {
    const size_t wanted = std::min(width, matrix.storedColumns - group * width);
    if (sizes[group] != wanted)
      failGroups(matrix, "group " + std::to_string(group) + " has " + std::to_string(sizes[group]) + " columns, not " +
                             std::to_string(wanted) + ": no permutation of columns");
  }
  if (isInOrder) matrix.groups.clear();
}

void parseCodes(Encoded &matrix, const Fields &encoding, const Fields &parts) {
  const Fields scales = encoding.fields("scales");
  ScaleGrid &grid = matrix.scales;
  grid.type = scaleTypeOf(scales);
  grid.blockRows = scales.extent("blockRows");
  grid.blockColumns = scales.extent("blockColumns");
  const size_t rows = ceilDiv(matrix.rows, grid.blockRows), columns = ceilDiv(matrix.storedColumns, grid.blockColumns);
  const bool isTransposed = scales.flag("isTransposed");
  grid.rowStride = isTransposed ? 1 : columns;
  grid.columnStride = isTransposed ? rows : 1;
  const size_t bytes = grid.type == ScaleType::F32 ? 4 : grid.type == ScaleType::E8M0 ? 1 : 2;
  grid.data = partAt(matrix, parts, "scales", product(product(rows, columns, "scales"), bytes, "scales"));
  matrix.codes = codeGrid(matrix, encoding.fields("codes"), parts, "codes", matrix.rows, matrix.storedColumns);
  const Fields zero = encoding.fields("zero");
  const std::string kind = zero.text("kind");
  if (kind == "constant") {
    matrix.zero = zero.small("value");
  } else if (kind == "stored") {
    matrix.hasZeros = true;
    matrix.zero = zero.small("added");
    matrix.zeros = codeGrid(matrix, zero.fields("codes"), parts, "zeros", rows, columns);
    const CodeType type = matrix.zeros.type;
    if (type == CodeType::E4M3 || type == CodeType::E5M2 || type == CodeType::E2M1) fail("zero points are floats");
  } else {
    fail(zero.path("kind") + " must be constant or stored, not " + kind);
  }
  if (!encoding.flag("hasGroups")) return;
  readGroups(matrix, partAt(matrix, parts, "groups", product(matrix.storedColumns, 4, "groups")), columns);
}

void parseBlocks(Encoded &matrix, const Fields &encoding, const Fields &parts) {
  matrix.block = findBlockFormat(encoding.text("block"));
  if (matrix.block == nullptr) fail(encoding.path("block") + " is no format of blocks: " + encoding.text("block"));
  const size_t width = matrix.block->units * BLOCK_UNIT;
  if (matrix.storedColumns % width != 0)
    fail(encoding.path("block") + ": rows of " + std::to_string(matrix.storedColumns) + " are not whole blocks");
  const size_t count = product(matrix.rows, matrix.storedColumns / width, "a matrix");
  matrix.blocks = partAt(matrix, parts, "blocks", product(count, matrix.block->bytes, "a matrix"));
}

/** Codes can be read apart from their scales: those of 4 bits where columns are in order, E4M3 with scales of rows. */
void parseReads(Encoded &matrix, const Fields &source) {
  if (source.get("reads").IsUndefined()) return;
  if (matrix.k != matrix.storedColumns) fail(source.path("reads") + ": values of some columns only can be read");
  const Fields reads = source.fields("reads");
  const std::string kind = reads.text("kind");
  if (kind != "codes" && kind != "scales" && kind != "row scales")
    fail(reads.path("kind") + " must be codes, scales or row scales, not " + kind);
  if (hasRowScales(matrix, CodeType::E4M3) && kind != "scales") {
    matrix.reads = kind == "codes" ? EncodedReads::Codes : EncodedReads::RowScales;
    return;
  }
  if (kind == "row scales") fail(reads.path("kind") + ": the matrix has no codes of E4M3 with scales of rows");
  if (matrix.block != nullptr || matrix.codes.type != CodeType::U4)
    fail(reads.path("kind") + ": the matrix has no codes of 4 bits");
  if (!matrix.groups.empty()) failGroups(matrix, "its columns are in another order than its groups");
  matrix.reads = kind == "codes" ? EncodedReads::Codes : EncodedReads::Scales;
  if (matrix.reads == EncodedReads::Codes) return;
  matrix.group = reads.extent("group");
  if (matrix.k % matrix.group != 0 || matrix.scales.blockColumns % matrix.group != 0)
    fail(reads.path("group") + " does not divide the groups of the matrix");
}

}  // namespace

std::shared_ptr<const Encoded> encodedArg(const Napi::Value &value, const std::string &what) {
  const Fields source(value, what);
  static std::atomic<uint64_t> made{0};
  auto matrix = std::make_shared<Encoded>();
  matrix->id = made.fetch_add(1) + 1;
  matrix->name = source.text("name");
  matrix->rows = source.extent("rows");
  matrix->k = source.extent("k");
  matrix->storedColumns = matrix->k;
  if (!source.get("columns").IsUndefined()) {
    const Fields columns = source.fields("columns");
    matrix->storedColumns = columns.extent("of");
    matrix->firstColumn = static_cast<size_t>(integerArg(columns.get("first"), columns.path("first"), 0,
                                                         static_cast<int64_t>(matrix->storedColumns)));
    if (matrix->k > matrix->storedColumns - matrix->firstColumn) fail(columns.path("first") + ": too few columns");
  }
  product(product(matrix->rows, matrix->storedColumns, "a matrix"), 4, "a matrix");
  const Fields encoding = source.fields("encoding"), parts = source.fields("parts");
  const std::string kind = encoding.text("kind");
  if (kind == "codes") parseCodes(*matrix, encoding, parts);
  else if (kind == "blocks") parseBlocks(*matrix, encoding, parts);
  else fail(encoding.path("kind") + " must be codes or blocks, not " + kind);
  parseReads(*matrix, source);
  return matrix;
}

}  // namespace tw
