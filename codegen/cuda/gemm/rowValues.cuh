/* Values that epilogues read of a row, such as 1/rms, from sums and maxima of the row's parts in memory. */
#pragma once
#include "lib/warp.cuh"

namespace tw {

/*
 * How a functor adds up the parts of a row, or finds the largest: at once; or in two calls. The first loads what the
 * second adds up, so that loads of several rows are on the way together. Behind a root, compilers would start none.
 */
struct RowAtOnce {
  TW_DEVICE float sum(const float *p, int n) const { return row_sum(p, n); }
  TW_DEVICE float largest(const float *p, int n) const { return row_max(p, n); }
};
/* What a lane loads of `count` sums and maxima of a row. */
template <int count> struct RowParts { float4 x[count > 0 ? count : 1][4]; };
template <int count> struct RowLoads {
  RowParts<count> &parts;
  int at = 0;

  TW_DEVICE float take(const float *p, int n, float none) {
    if (n == 1) parts.x[at++][0].x = *p;
    else row_load(p, n, 4 * (int)(threadIdx.x % 32), none, parts.x[at++]);
    return 0.0f;
  }
  TW_DEVICE float sum(const float *p, int n) { return take(p, n, 0.0f); }
  TW_DEVICE float largest(const float *p, int n) { return take(p, n, *p); }
};
template <int count> struct RowLoaded {
  const RowParts<count> &parts;
  int at = 0;

  TW_DEVICE float sum(const float *p, int n) { return row_sum(p, n, parts.x[at++]); }
  TW_DEVICE float largest(const float *p, int n) { return row_max(p, n, parts.x[at++]); }
};

/* Rows whose loads take at most so many registers of a lane, but at most `most` of them. */
template <class Prologue> TW_CONSTEXPR int rows_together(int registers, int most) {
  const int rows = Prologue::row_loads == 0 ? most : registers / Prologue::row_loads;
  return rows < 1 ? 1 : rows < most ? rows : most;
}
/* Values of several rows by a whole warp; lane 0 has them. */
template <int count, class Prologue>
TW_DEVICE void values_of_rows(const Prologue &prologue, const int (&rows)[count],
    float (&values)[count][Prologue::row_values]) {
  constexpr int sums = Prologue::row_sums;
  if constexpr (count == 1 || sums == 0) {
#pragma unroll
    for (int i = 0; i < count; i++) prologue.row(rows[i], values[i], RowAtOnce{});
  } else {
    RowParts<sums> parts[count];
#pragma unroll
    for (int i = 0; i < count; i++) prologue.row(rows[i], values[i], RowLoads<sums>{ parts[i] });
#pragma unroll
    for (int i = 0; i < count; i++) prologue.row(rows[i], values[i], RowLoaded<sums>{ parts[i] });
  }
}

}  // namespace tw
