// Blocks of ggml (ir/blocks.ts), in units of 32 elements.
#include "encoded.h"
#include "halves.h"

namespace tw {
namespace {

struct HalfScale {
  float value;
  bool isFinite;
};

inline HalfScale halfScaleAt(const uint8_t *at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return {fromF16(half), (half & 0x7c00u) != 0x7c00u};
}

TW_CLONES bool decodeQ8_0(const uint8_t *block, size_t, float *out) {
  const HalfScale d = halfScaleAt(block);
  for (size_t i = 0; i < 32; i++) out[i] = d.value * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  return d.isFinite;
}

TW_CLONES bool decodeQ4_0(const uint8_t *block, size_t, float *out) {
  const HalfScale d = halfScaleAt(block);
  const uint8_t *codes = block + 2;
  for (size_t i = 0; i < 16; i++) {
    out[i] = d.value * static_cast<float>((codes[i] & 15) - 8);
    out[i + 16] = d.value * static_cast<float>((codes[i] >> 4) - 8);
  }
  return d.isFinite;
}

/** Factor and offset of sub-block `j` of Q4_K and Q5_K; both products are exact. */
struct SubBlock {
  float factor, offset;
  bool isFinite;
};

inline SubBlock subBlockOf(const uint8_t *block, size_t j) {
  const HalfScale d = halfScaleAt(block), dmin = halfScaleAt(block + 2);
  const uint8_t *s = block + 4;
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  return {d.value * static_cast<float>(scale), dmin.value * static_cast<float>(minimum), d.isFinite && dmin.isFinite};
}

TW_CLONES bool decodeQ4_K(const uint8_t *block, size_t unit, float *out) {
  const SubBlock own = subBlockOf(block, unit);
  const uint8_t *codes = block + 16 + 32 * (unit / 2);
  const int shift = unit % 2 == 0 ? 0 : 4;
  for (size_t i = 0; i < 32; i++)
    out[i] = own.factor * static_cast<float>((codes[i] >> shift) & 15) - own.offset;
  return own.isFinite;
}

TW_CLONES bool decodeQ5_K(const uint8_t *block, size_t unit, float *out) {
  const SubBlock own = subBlockOf(block, unit);
  const uint8_t *upper = block + 16;
  const uint8_t *codes = block + 48 + 32 * (unit / 2);
  const int shift = unit % 2 == 0 ? 0 : 4;
  for (size_t i = 0; i < 32; i++) {
    const int code = ((codes[i] >> shift) & 15) | ((upper[i] >> unit & 1) << 4);
    out[i] = own.factor * static_cast<float>(code) - own.offset;
  }
  return own.isFinite;
}

TW_CLONES bool decodeQ6_K(const uint8_t *block, size_t unit, float *out) {
  const HalfScale d = halfScaleAt(block + 208);
  const size_t half = unit / 4, quarter = unit % 4;
  const uint8_t *low = block + 64 * half + 32 * (quarter & 1);
  const uint8_t *high = block + 128 + 32 * half;
  const auto *scales = reinterpret_cast<const int8_t *>(block + 192 + 2 * unit);
  const int shift = quarter < 2 ? 0 : 4;
  const int upper = static_cast<int>(2 * quarter);
  for (size_t part = 0; part < 2; part++) {
    const float factor = d.value * static_cast<float>(scales[part]);  // exact
    for (size_t i = 16 * part; i < 16 * part + 16; i++) {
      const int code = ((low[i] >> shift) & 15) | ((high[i] >> upper & 3) << 4);
      out[i] = factor * static_cast<float>(code - 32);
    }
  }
  return d.isFinite;
}

/** E2M1: sign, 2 bits of exponent with bias 1, one of the fraction. */
inline float fromE2M1(uint32_t code) {
  const uint32_t magnitude = code & 7u;
  return floatOf((code & 8u) << 28 | (magnitude < 2 ? magnitude * 0x3f000000u : (magnitude << 22) + (126u << 23)));
}

TW_CLONES bool decodeMXFP4(const uint8_t *block, size_t, float *out) {
  const uint32_t power = block[0];
  const float scale = floatOf(power == 0 ? 0x00400000u : power << 23);
  for (size_t i = 0; i < 16; i++) {
    out[i] = scale * fromE2M1(block[1 + i] & 15);
    out[i + 16] = scale * fromE2M1(block[1 + i] >> 4);
  }
  return power != 255;
}

const BlockFormat BLOCK_FORMATS[] = {
    {"q8_0", 1, 34, decodeQ8_0},  {"q4_0", 1, 18, decodeQ4_0},  {"q4_k", 8, 144, decodeQ4_K},
    {"q5_k", 8, 176, decodeQ5_K}, {"q6_k", 8, 210, decodeQ6_K}, {"mxfp4", 1, 17, decodeMXFP4},
};

}  // namespace

const BlockFormat *findBlockFormat(const std::string &name) {
  for (const BlockFormat &format : BLOCK_FORMATS)
    if (name == format.name) return &format;
  return nullptr;
}

}  // namespace tw
