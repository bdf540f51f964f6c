// Floats of 16 bits.
#ifndef TILEWRIGHT_HALVES_H
#define TILEWRIGHT_HALVES_H
#include <cstdint>
#include <cstring>

namespace tw {

inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline float fromF16(uint16_t half) {
  const uint32_t sign = (uint32_t{half} & 0x8000u) << 16;
  const uint32_t magnitude = uint32_t{half} & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // from bias 15 to bias 127
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  // Through an integer, not through a subnormal float: those cost a hundred cycles each.
  const uint32_t subnormal = bitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return floatOf(sign | (magnitude >= 0x7c00u ? special : magnitude < 0x0400u ? subnormal : normal));
}

}  // namespace tw

// Loops are written for the compiler's vectoriser; wider instruction sets are chosen when the addon loads.
#if defined(__x86_64__) && defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#define TW_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define TW_CLONES
#endif
#endif
