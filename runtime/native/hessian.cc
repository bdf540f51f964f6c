#include "hessian.h"

namespace tw {
namespace {

/** Columns of a block of a factor, and rows of inputs that are added at a time: a panel of it stays in the L1 cache. */
constexpr size_t BLOCK = 128;
constexpr size_t INPUT_ROWS = 256;

size_t panelsOf(size_t columns) { return (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS; }

/**
 * The lower triangle of c ± PᵀP for panels P of `depth` rows, which lie one after another. Tiles on the diagonal are
 * computed whole.
 */
void symmetricUpdate(Pool &pool, double *c, size_t stride, const double *panels, size_t count, size_t depth,
                     PanelSign sign) {
  constexpr size_t IN_BLOCK = BLOCK / PANEL_COLUMNS;
  const size_t blocks = (count + IN_BLOCK - 1) / IN_BLOCK;
  eachOf(pool, blocks * (blocks + 1) / 2, [&](size_t item) {
    size_t rowBlock = 0;
    while ((rowBlock + 1) * (rowBlock + 2) / 2 <= item) rowBlock++;
    const size_t columnBlock = item - rowBlock * (rowBlock + 1) / 2;
    for (size_t j = columnBlock * IN_BLOCK; j < std::min(count, (columnBlock + 1) * IN_BLOCK); j++)
      for (size_t i = std::max(j, rowBlock * IN_BLOCK); i < std::min(count, (rowBlock + 1) * IN_BLOCK); i++)
        panelProduct(c + i * PANEL_COLUMNS * stride + j * PANEL_COLUMNS, stride, PANEL_COLUMNS,
                     {panels + i * depth * PANEL_COLUMNS, PANEL_COLUMNS, panels + j * depth * PANEL_COLUMNS,
                      PANEL_COLUMNS, depth},
                     sign);
  });
}

/** L of the `size` columns from `first` on, whose products with columns before are subtracted already. */
void factorDiagonal(const SquareMatrix &m, size_t first, size_t size) {
  for (size_t j = first; j < first + size; j++) {
    double *row = m.row(j);
    for (size_t i = first; i <= j; i++) {
      const double *other = m.row(i);
      double sum = row[i];
      for (size_t t = first; t < i; t++) sum -= row[t] * other[t];
      if (i < j) {
        row[i] = sum / other[i];
      } else if (sum > 0 && std::isfinite(sum)) {
        row[i] = std::sqrt(sum);
      } else {
        throw CodedError("The inputs of a layer depend on each other: no factor of their products",
                         "NOT_POSITIVE", "factorHessian", false);
      }
    }
  }
}

/** PANEL_COLUMNS rows of L in the block's columns: x·Lᵀ = what is there. They are left in `panel` as well. */
void solveRows(const SquareMatrix &m, size_t row, size_t first, size_t size, double *panel) {
  for (size_t t = 0; t < size; t++)
    for (size_t r = 0; r < PANEL_COLUMNS; r++) panel[t * PANEL_COLUMNS + r] = m.row(row + r)[first + t];
  for (size_t t = 0; t < size; t++) {
    const double *l = m.row(first + t) + first;
    double *own = panel + t * PANEL_COLUMNS;
    for (size_t s = 0; s < t; s++)
      for (size_t r = 0; r < PANEL_COLUMNS; r++) own[r] -= l[s] * panel[s * PANEL_COLUMNS + r];
    for (size_t r = 0; r < PANEL_COLUMNS; r++) own[r] /= l[t];
  }
  for (size_t t = 0; t < size; t++)
    for (size_t r = 0; r < PANEL_COLUMNS; r++) m.row(row + r)[first + t] = panel[t * PANEL_COLUMNS + r];
}

void factorInPlace(Pool &pool, const SquareMatrix &m) {
  const size_t n = m.stride;
  std::vector<double> panels(panelsOf(n) * PANEL_COLUMNS * BLOCK);
  for (size_t first = 0; first < n; first += BLOCK) {
    const size_t size = std::min(BLOCK, n - first), rest = first + size, count = panelsOf(n - rest);
    factorDiagonal(m, first, size);
    eachOf(pool, count, [&](size_t i) {
      solveRows(m, rest + i * PANEL_COLUMNS, first, size, panels.data() + i * PANEL_COLUMNS * size);
    });
    symmetricUpdate(pool, m.row(rest) + rest, m.stride, panels.data(), count, size, PanelSign::Subtract);
  }
  for (size_t i = 0; i < n; i++) std::fill(m.row(i) + i + 1, m.row(i) + n, 0.0);
}

/** The inverse of a block on the diagonal, transposed, with rows of BLOCK doubles. */
std::vector<double> inverseOfDiagonal(const SquareMatrix &m, size_t first, size_t size) {
  std::vector<double> turned(BLOCK * BLOCK, 0.0);
  for (size_t j = 0; j < size; j++)
    for (size_t i = j; i < size; i++) {
      const double *l = m.row(first + i) + first;
      double sum = i == j ? 1 : 0;
      for (size_t t = j; t < i; t++) sum -= l[t] * turned[j * BLOCK + t];
      turned[j * BLOCK + i] = sum / l[i];
    }
  return turned;
}

}  // namespace

void addToHessian(Pool &pool, const SquareMatrix &hessian, const float *inputs, size_t rows) {
  const size_t count = panelsOf(hessian.k), k = hessian.k;
  std::vector<double> panels(count * PANEL_COLUMNS * std::min(rows, INPUT_ROWS));
  for (size_t first = 0; first < rows; first += INPUT_ROWS) {
    const size_t depth = std::min(INPUT_ROWS, rows - first);
    eachOf(pool, count, [&](size_t i) {
      double *panel = panels.data() + i * depth * PANEL_COLUMNS;
      const size_t column = i * PANEL_COLUMNS, width = std::min(PANEL_COLUMNS, k - column);
      for (size_t t = 0; t < depth; t++) {
        const float *input = inputs + (first + t) * k + column;
        double *line = panel + t * PANEL_COLUMNS;
        std::copy(input, input + width, line);
        std::fill(line + width, line + PANEL_COLUMNS, 0.0);
      }
    });
    symmetricUpdate(pool, hessian.row(0), hessian.stride, panels.data(), count, depth, PanelSign::Add);
  }
}

void factorHessian(Pool &pool, const SquareMatrix &hessian, const ColumnOrder &order, double damping,
                   const SquareMatrix &factor) {
  const size_t k = hessian.k, n = factor.stride;
  double mean = 0;
  for (size_t i = 0; i < k; i++) mean += hessian.row(i)[i] / static_cast<double>(k);
  const double added = mean > 0 ? damping * mean : 1;
  eachOf(pool, n, [&](size_t a) {
    double *row = factor.row(a);
    std::fill(row, row + n, 0.0);
    if (a >= k) {
      row[a] = 1;
      return;
    }
    const auto own = static_cast<size_t>(order[k - 1 - a]);
    for (size_t b = 0; b <= a; b++) {
      const auto other = static_cast<size_t>(order[k - 1 - b]);
      row[b] = own > other ? hessian.row(own)[other] : hessian.row(other)[own];
    }
    row[a] += added;
  });
  factorInPlace(pool, factor);
}

void invertFactor(Pool &pool, const SquareMatrix &factor) {
  const size_t n = factor.stride;
  std::vector<double> left(n * BLOCK);
  for (size_t first = 0; first < n; first += BLOCK) {
    const size_t size = std::min(BLOCK, n - first);
    const std::vector<double> diagonal = inverseOfDiagonal(factor, first, size);
    eachOf(pool, panelsOf(first), [&](size_t panel) {
      for (size_t t = panel * PANEL_COLUMNS; t < (panel + 1) * PANEL_COLUMNS; t++)
        for (size_t r = 0; r < size; r++) left[t * BLOCK + r] = factor.row(first + r)[t];
    });
    // The rows before are inverted: L⁻¹ = −L_II⁻¹·(L_I·L⁻¹) left of the diagonal.
    eachOf(pool, panelsOf(first), [&](size_t panel) {
      const size_t column = panel * PANEL_COLUMNS, depth = first - column;
      std::vector<double> above(depth * PANEL_COLUMNS), sum(BLOCK * PANEL_COLUMNS), out(BLOCK * PANEL_COLUMNS);
      for (size_t t = 0; t < depth; t++)
        std::copy_n(factor.row(column + t) + column, PANEL_COLUMNS, above.data() + t * PANEL_COLUMNS);
      panelProduct(sum.data(), PANEL_COLUMNS, size,
                   {left.data() + column * BLOCK, BLOCK, above.data(), PANEL_COLUMNS, depth}, PanelSign::Add);
      panelProduct(out.data(), PANEL_COLUMNS, size, {diagonal.data(), BLOCK, sum.data(), PANEL_COLUMNS, size},
                   PanelSign::Subtract);
      for (size_t r = 0; r < size; r++)
        std::copy_n(out.data() + r * PANEL_COLUMNS, PANEL_COLUMNS, factor.row(first + r) + column);
    });
    for (size_t i = 0; i < size; i++)
      for (size_t j = 0; j < size; j++) factor.row(first + i)[first + j] = diagonal[j * BLOCK + i];
  }
}

void loadPanel(const float *values, size_t rows, size_t k, size_t first, const ColumnOrder &order, double *panel) {
  for (size_t a = 0; a < k; a++) {
    const auto column = static_cast<size_t>(order[k - 1 - a]);
    for (size_t r = 0; r < PANEL_COLUMNS; r++)
      panel[a * PANEL_COLUMNS + r] = first + r < rows ? static_cast<double>(values[(first + r) * k + column]) : 0;
  }
}

double weightedNorm(Pool &pool, const SquareMatrix &factor, const ColumnOrder &order, const float *values,
                    size_t rows) {
  const size_t k = factor.k, n = factor.stride, count = panelsOf(rows);
  std::vector<double> norms(count, 0.0);
  eachOf(pool, count, [&](size_t item) {
    std::vector<double> panel(n * PANEL_COLUMNS, 0.0), out(PANEL_COLUMNS * PANEL_COLUMNS);
    loadPanel(values, rows, k, item * PANEL_COLUMNS, order, panel.data());
    for (size_t j = 0; j < n; j += PANEL_COLUMNS) {
      std::fill(out.begin(), out.end(), 0.0);
      panelProduct(out.data(), PANEL_COLUMNS, PANEL_COLUMNS,
                   {factor.row(j) + j, factor.stride, panel.data() + j * PANEL_COLUMNS, PANEL_COLUMNS, n - j},
                   PanelSign::Add);
      for (const double value : out) norms[item] += value * value;
    }
  });
  double sum = 0;
  for (const double norm : norms) sum += norm;
  return sum;
}

}  // namespace tw
