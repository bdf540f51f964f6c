// Products of narrow panels of doubles: what the matrices of quantisation are computed by.
#ifndef TILEWRIGHT_PANELPRODUCT_H
#define TILEWRIGHT_PANELPRODUCT_H
#include <cstddef>

namespace tw {

/** Columns of a panel, and what the rows of a product are a multiple of. */
constexpr size_t PANEL_COLUMNS = 16;
constexpr size_t PANEL_ROWS = 8;

/** Panels that a product reads: element (t, i) of a, and (t, j) of b, lies t times its stride behind the first row. */
struct PanelOperands {
  const double *a = nullptr;
  size_t aStride = 0;
  const double *b = nullptr;
  size_t bStride = PANEL_COLUMNS;
  size_t depth = 0;
};

enum class PanelSign { Add, Subtract };

/**
 * c[i][j] ± Σ_t a[t][i]·b[t][j] for `rows` rows (rounded up to PANEL_ROWS) and PANEL_COLUMNS columns. Every product and
 * every sum is rounded, in order of t: the result is the same on every machine.
 */
void panelProduct(double *c, size_t cStride, size_t rows, const PanelOperands &operands, PanelSign sign);

}  // namespace tw
#endif
