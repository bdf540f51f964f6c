/* Rows that workers take a few at a time. */
#pragma once
#include "lib/types.h"

/* The next `step` of `rows` rows. */
typedef struct RowBlock {
  int64_t begin, end;
} RowBlock;

/* 0: no row is left. */
TW_FN int tw_next_rows(const tw_launch *launch, int64_t rows, int64_t step, RowBlock *block) {
  block->begin = __atomic_fetch_add(launch->next, 1, __ATOMIC_RELAXED) * step;
  block->end = block->begin + step < rows ? block->begin + step : rows;
  return block->begin < rows;
}
