// Rows of a matrix as codes: to the nearest, or by GPTQ (arXiv:2210.17323), which corrects the columns that are still
// floats by what the ones before lost.
#ifndef TILEWRIGHT_GPTQ_H
#define TILEWRIGHT_GPTQ_H
#include "hessian.h"

namespace tw {

struct CodeSettings {
  int bits = 4;
  /** Neighbours in the order of columns that share a scale. A multiple of it, or the block, is one of the other. */
  size_t group = 128;
  /** A zero point of half the range, and as much room below as above. */
  bool isSymmetric = true;
};

/** A matrix [rows, k] as (code − zero)·scale. */
struct CodedRows {
  /** [rows, k], columns as stored. */
  std::vector<uint8_t> codes;
  /** [groups, rows]: f16, positive. */
  std::vector<uint16_t> scales;
  /** [groups, rows]: 1 to the largest code. */
  std::vector<uint8_t> zeros;
  /** What GPTQ says of the error of the outputs: Σ ‖(w − ŵ)·L‖². 0 where rows were rounded. */
  double loss = 0;
};

/**
 * Codes of weights [rows, k]. `inverse`: that of the factor of the layer's matrix by `order`; null to round to the
 * nearest.
 */
CodedRows codeRows(Pool &pool, const float *weights, size_t rows, const ColumnOrder &order,
                   const CodeSettings &settings, const SquareMatrix *inverse);

}  // namespace tw
#endif
