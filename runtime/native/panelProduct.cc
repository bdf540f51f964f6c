#include "panelProduct.h"

#include "cpu.h"

namespace tw {
namespace {

/** Rows that one pass over t keeps in registers, with LANES columns in each. Contraction is off for the whole addon. */
template <size_t LANES, size_t ROWS, bool IS_SUM>
[[gnu::always_inline]] inline void productOf(double *c, size_t cStride, size_t rows, const PanelOperands &operands) {
  typedef double Vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
  constexpr size_t VECTORS = PANEL_COLUMNS / LANES;
  const auto [a, aStride, b, bStride, depth] = operands;
  for (size_t i = 0; i < rows; i += ROWS) {
    Vector sums[ROWS][VECTORS];
    for (size_t r = 0; r < ROWS; r++)
      for (size_t v = 0; v < VECTORS; v++)
        sums[r][v] = *reinterpret_cast<const Vector *>(c + (i + r) * cStride + v * LANES);
    for (size_t t = 0; t < depth; t++) {
      const double *left = a + t * aStride + i;
      const double *right = b + t * bStride;
      Vector factors[VECTORS];
      for (size_t v = 0; v < VECTORS; v++) factors[v] = *reinterpret_cast<const Vector *>(right + v * LANES);
      for (size_t r = 0; r < ROWS; r++)
        for (size_t v = 0; v < VECTORS; v++)
          if constexpr (IS_SUM) sums[r][v] += left[r] * factors[v];
          else sums[r][v] -= left[r] * factors[v];
    }
    for (size_t r = 0; r < ROWS; r++)
      for (size_t v = 0; v < VECTORS; v++)
        *reinterpret_cast<Vector *>(c + (i + r) * cStride + v * LANES) = sums[r][v];
  }
}

template <bool IS_SUM>
void portableProduct(double *c, size_t cStride, size_t rows, const PanelOperands &operands) {
  productOf<2, 1, IS_SUM>(c, cStride, rows, operands);
}

#if defined(__x86_64__)
template <bool IS_SUM>
[[gnu::target("avx2")]] void avx2Product(double *c, size_t cStride, size_t rows, const PanelOperands &operands) {
  productOf<4, 2, IS_SUM>(c, cStride, rows, operands);
}

template <bool IS_SUM>
[[gnu::target("avx512f")]] void avx512Product(double *c, size_t cStride, size_t rows, const PanelOperands &operands) {
  productOf<8, 8, IS_SUM>(c, cStride, rows, operands);
}
#endif

using Product = void (*)(double *, size_t, size_t, const PanelOperands &);

template <bool IS_SUM>
Product choose() {
#if defined(__x86_64__)
  if (cpu().hasAvx512) return avx512Product<IS_SUM>;
  if (cpu().hasAvx2) return avx2Product<IS_SUM>;
#endif
  return portableProduct<IS_SUM>;
}

}  // namespace

void panelProduct(double *c, size_t cStride, size_t rows, const PanelOperands &operands, PanelSign sign) {
  static const Product add = choose<true>(), subtract = choose<false>();
  (sign == PanelSign::Add ? add : subtract)(c, cStride, rows, operands);
}

}  // namespace tw
