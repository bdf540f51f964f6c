// Panels of quads (ir/quads.ts): codes of 32 columns, 4 neighbours along k together, with the scales of their blocks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "encoded.h"
#include "halves.h"
#include "pack.h"

namespace tw {
namespace {

constexpr size_t QUAD_CODES = 4, QUAD_GROUP = 32, QUAD_LINE = QUAD_COLUMNS * QUAD_CODES;

}  // namespace

/** A block of one column: its scales, as they are stored, and its codes. */
struct QuadBlock {
  uint8_t d[2] = {}, dmin[2] = {};
  /** Of sub-blocks: scales and minima of a byte, or two scales. */
  uint8_t first[8] = {}, second[8] = {};
  uint8_t codes[256] = {};
};

namespace {

bool isFiniteHalf(const uint8_t *half) { return (half[1] & 0x7c) != 0x7c; }

void loadQ8_0(const uint8_t *in, QuadBlock &out) {
  std::memcpy(out.d, in, 2);
  for (size_t i = 0; i < 32; i++) out.codes[i] = static_cast<uint8_t>(in[2 + i] ^ 0x80u);
}

void loadQ4_0(const uint8_t *in, QuadBlock &out) {
  std::memcpy(out.d, in, 2);
  for (size_t i = 0; i < 16; i++) {
    out.codes[i] = in[2 + i] & 15;
    out.codes[16 + i] = in[2 + i] >> 4;
  }
}

/** Scales and minima of 6 bits each of 8 sub-blocks, in 12 bytes. */
void loadSubBlocks(const uint8_t *in, QuadBlock &out) {
  std::memcpy(out.d, in, 2);
  std::memcpy(out.dmin, in + 2, 2);
  const uint8_t *s = in + 4;
  for (size_t j = 0; j < 4; j++) {
    out.first[j] = s[j] & 63;
    out.second[j] = s[j + 4] & 63;
    out.first[j + 4] = static_cast<uint8_t>((s[j + 8] & 15) | (s[j] >> 6 << 4));
    out.second[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6 << 4));
  }
}

/** Lower halves of 32 bytes are a sub-block, upper halves the next. */
void loadHalves(const uint8_t *in, QuadBlock &out) {
  for (size_t i = 0; i < 256; i++)
    out.codes[i] = static_cast<uint8_t>(in[32 * (i / 64) + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15);
}

void loadQ4_K(const uint8_t *in, QuadBlock &out) {
  loadSubBlocks(in, out);
  loadHalves(in + 16, out);
}

void loadQ5_K(const uint8_t *in, QuadBlock &out) {
  loadSubBlocks(in, out);
  loadHalves(in + 48, out);
  for (size_t i = 0; i < 256; i++)
    out.codes[i] = static_cast<uint8_t>(out.codes[i] | (in[16 + i % 32] >> (i / 32) & 1) << 4);
}

void loadQ6_K(const uint8_t *in, QuadBlock &out) {
  std::memcpy(out.d, in + 208, 2);
  for (size_t j = 0; j < 8; j++) {
    out.first[j] = in[192 + 2 * j];
    out.second[j] = in[193 + 2 * j];
  }
  for (size_t i = 0; i < 256; i++) {
    const size_t half = i / 128, quarter = i / 32 % 4;
    const int low = in[64 * half + 32 * (quarter & 1) + i % 32] >> (quarter < 2 ? 0 : 4) & 15;
    const int high = in[128 + 32 * half + i % 32] >> (2 * quarter) & 3;
    out.codes[i] = static_cast<uint8_t>(low | high << 4);
  }
}

/** 32 codes of a column into the lines of a group. */
void storeGroup(const uint8_t *codes, unsigned bits, uint8_t *lines) {
  for (size_t i = 0; i < QUAD_GROUP; i++) {
    const size_t quad = i / QUAD_CODES, at = i % QUAD_CODES;
    if (bits == 8) {
      lines[quad * QUAD_LINE + at] = codes[i];
      continue;
    }
    uint8_t &lower = lines[quad / 2 * QUAD_LINE + at];
    lower = static_cast<uint8_t>(lower | (codes[i] & 15) << (quad % 2 * 4));
    if (bits == 5) {
      uint8_t &upper = lines[4 * QUAD_LINE + at];
      upper = static_cast<uint8_t>(upper | (codes[i] >> 4) << quad);
    } else if (bits == 6) {
      uint8_t &upper = lines[(4 + quad / 4) * QUAD_LINE + at];
      upper = static_cast<uint8_t>(upper | (codes[i] >> 4) << (quad % 4 * 2));
    }
  }
}

}  // namespace

/** As QUADS of ir/quads.ts. */
struct QuadFormat {
  const char *name;
  unsigned bits;
  size_t groups, head, scales;
  uint8_t zero;
  void (*load)(const uint8_t *in, QuadBlock &out);
};

namespace {
const QuadFormat QUAD_FORMATS[] = {
    {"q8_0", 8, 1, 64, 0, 128, loadQ8_0},   {"q4_0", 4, 1, 64, 0, 8, loadQ4_0},
    {"q4_k", 4, 8, 128, 64, 0, loadQ4_K},   {"q5_k", 5, 8, 128, 64, 0, loadQ5_K},
    {"q6_k", 6, 8, 64, 64, 32, loadQ6_K},   {"i8", 8, 2, 0, 0, 128, nullptr},
};

size_t groupBytes(const QuadFormat &format) { return format.scales + format.bits * QUAD_LINE; }

/** One column of a unit; scales of 0 where the row is padding. */
void storeColumn(const QuadFormat &format, const QuadBlock &block, size_t lane, uint8_t *unit) {
  if (format.head > 0) std::memcpy(unit + 2 * lane, block.d, 2);
  if (format.head > 64) std::memcpy(unit + 64 + 2 * lane, block.dmin, 2);
  for (size_t g = 0; g < format.groups; g++) {
    uint8_t *group = unit + format.head + g * groupBytes(format);
    if (format.scales > 0) {
      group[lane] = block.first[g];
      group[QUAD_COLUMNS + lane] = block.second[g];
    }
    storeGroup(block.codes + g * QUAD_GROUP, format.bits, group + format.scales + QUAD_CODES * lane);
  }
}
}  // namespace

const QuadFormat *findQuadFormat(const std::string &name) {
  for (const QuadFormat &format : QUAD_FORMATS)
    if (name == format.name) return &format;
  return nullptr;
}

size_t quadDepth(const QuadFormat &format) { return QUAD_GROUP * format.groups; }

size_t quadPanelBytes(const QuadFormat &format, size_t k) {
  return (k + quadDepth(format) - 1) / quadDepth(format) * (format.head + format.groups * groupBytes(format));
}

bool holdsBlocks(const QuadFormat &format, const Encoded &matrix) {
  return matrix.block != nullptr && std::strcmp(matrix.block->name, format.name) == 0;
}

bool hasWholeRows(const QuadFormat &format) { return format.load == nullptr; }

namespace {

float largestOf(const float *row, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; i++) {
    const float magnitude = std::fabs(row[i]);
    if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
  }
  return largest;
}

TW_CLONES void roundCodes(const float *row, float scale, size_t count, int8_t *codes) {
  for (size_t i = 0; i < count; i++) {
    const float code = std::nearbyintf(row[i] / scale);
    codes[i] = static_cast<int8_t>(code > 127 ? 127 : code < -127 ? -127 : code == code ? code : 0);
  }
}

void packWholeRows(const PackJob &job, size_t panel) {
  const size_t bytes = quadPanelBytes(*job.quads, job.k);
  uint8_t *out = job.target + panel * bytes;
  std::memset(out, job.quads->zero, bytes);
  std::vector<int8_t> codes(job.k);
  for (size_t lane = 0; lane < QUAD_COLUMNS; lane++) {
    const RowRef ref = findRow(job, panel * QUAD_COLUMNS + lane);
    if (ref.source == nullptr) continue;
    codeRow(job, ref, codes.data());
    for (size_t i = 0; i < job.k; i++)
      out[i / QUAD_CODES * QUAD_LINE + QUAD_CODES * lane + i % QUAD_CODES] = static_cast<uint8_t>(codes[i] + 128);
  }
}

}  // namespace

float codeRow(const PackJob &job, const RowRef &ref, int8_t *codes) {
  if (job.isStored) {
    if (codes != nullptr) copyCodes(*ref.source->encoded, ref.row, codes);
    return rowScale(*ref.source->encoded, ref.row);
  }
  thread_local std::vector<float> row;
  row.resize(job.k);
  loadRow(*ref.source, job.k, ref.row, 0, job.k, row.data());
  for (size_t i = 0; i < job.columnScale.size(); i++) row[i] *= job.columnScale[i];
  const float largest = largestOf(row.data(), job.k), scale = largest / 127.0f;
  const float own = scale == 0 ? 1 : scale;
  if (codes != nullptr) roundCodes(row.data(), own, job.k, codes);
  return own;
}

void packQuads(const PackJob &job, size_t panel) {
  const QuadFormat &format = *job.quads;
  if (hasWholeRows(format)) return packWholeRows(job, panel);
  const size_t units = job.k / quadDepth(format), bytes = quadPanelBytes(format, job.k) / units;
  uint8_t *out = job.target + panel * units * bytes;
  std::memset(out, 0, units * bytes);
  QuadBlock block;
  for (size_t lane = 0; lane < QUAD_COLUMNS; lane++) {
    const RowRef ref = findRow(job, panel * QUAD_COLUMNS + lane);
    for (size_t unit = 0; unit < units; unit++) {
      if (ref.source == nullptr) {
        block = QuadBlock{};
        std::fill(block.codes, block.codes + 256, format.zero);
      } else {
        const Encoded &matrix = *ref.source->encoded;
        const uint8_t *in = matrix.blocks + (ref.row * units + unit) * matrix.block->bytes;
        format.load(in, block);
        if (!isFiniteHalf(block.d) || !isFiniteHalf(block.dmin))
          failScale(matrix, ref.row, unit * quadDepth(format), "not finite");
      }
      storeColumn(format, block, lane, out + unit * bytes);
    }
  }
}

}  // namespace tw
