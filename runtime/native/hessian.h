// The matrices that GPTQ (arXiv:2210.17323) weighs errors by: sums of products of a layer's inputs, their factors, and
// the inverses of these. All are lower triangles of doubles, of a stride that leaves room for whole panels.
#ifndef TILEWRIGHT_HESSIAN_H
#define TILEWRIGHT_HESSIAN_H
#include <atomic>
#include <vector>

#include "memory.h"
#include "panelProduct.h"
#include "pool.h"

namespace tw {

/** Rows and columns of a matrix of k columns in memory: a panel may begin at its last column. */
inline size_t hessianStride(size_t k) { return roundUp(k + PANEL_ROWS, PANEL_COLUMNS); }

/** A square matrix for k columns. */
struct SquareMatrix {
  std::shared_ptr<Memory> memory;
  size_t k = 0;
  size_t stride = 0;
  double *row(size_t i) const { return reinterpret_cast<double *>(memory->data()) + i * stride; }
};

/** hessian += XᵀX for X = inputs [rows, k]: products in order of rows. */
void addToHessian(Pool &pool, const SquareMatrix &hessian, const float *inputs, size_t rows);

/**
 * Columns in the order in which they are quantised. Matrices that depend on it have the last one first: with
 * H = L·Lᵀ in that order, L⁻¹ read backwards is the upper factor of H⁻¹ that GPTQ names, and a row of it lies in
 * one piece.
 */
using ColumnOrder = std::vector<int32_t>;

/**
 * factor = L of (hessian + damping · its mean diagonal · I) by `order`; of a matrix of zeros that of I. Throws
 * CodedError NOT_POSITIVE where it has none.
 */
void factorHessian(Pool &pool, const SquareMatrix &hessian, const ColumnOrder &order, double damping,
                   const SquareMatrix &factor);

/** factor = its inverse. */
void invertFactor(Pool &pool, const SquareMatrix &factor);

/** Σ over rows of ‖v·L‖², where v = values [rows, k] are by columns as stored: what v adds to a layer's outputs. */
double weightedNorm(Pool &pool, const SquareMatrix &factor, const ColumnOrder &order, const float *values,
                    size_t rows);

/** Runs body(item) for all items below `count` on the pool. Throws where it was stopped. */
template <typename Body>
void eachOf(Pool &pool, size_t count, Body &&body) {
  std::atomic<size_t> next{0};
  pool.run([&](int) {
    for (size_t item = next.fetch_add(1); item < count; item = next.fetch_add(1)) {
      if (pool.isStopping()) fail("Stopped while quantising");
      body(item);
    }
  });
}

/** Columns of a panel of `rows` rows from `first` on, as a row of PANEL_COLUMNS doubles for each; 0 past the last. */
void loadPanel(const float *values, size_t rows, size_t k, size_t first, const ColumnOrder &order, double *panel);

}  // namespace tw
#endif
