/*
 * The work items of a contraction: blocks of rows by blocks of columns, which workers take from the launch's counters.
 *
 * Columns are those of one segment behind another. A segment has a weight of its own, and an epilogue, which gets the
 * finished tile of an item. Blocks of rows have equal heights, so that the last one is no stub.
 */
#pragma once
#include "lib/vectors.h"

/*
 * Results [c0, c0 + cn) of rows [m0, m0 + mn), from the accumulators at `tile`. `lines`: scratch memory of floats. A
 * result of a segment with several matrices has an accumulator of each.
 */
typedef void GemmEpilogue(
    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn, float *lines);

typedef struct GemmSegment {
  int weight;               /* index of its buffer */
  int64_t columns, block;   /* columns as they lie in memory, and those of an item */
  int matrices;
  GemmEpilogue *epilogue;   /* 0: it is run beside products */
} GemmSegment;

typedef struct ItemsConfig {
  int rows;                    /* index of the extent */
  int block_rows, tile_rows;   /* of an item at most, and of a register tile */
  const GemmSegment *segments;
  int segment_count;
  int experts, starts;         /* how many, and the buffer of where their rows begin; 0: there are none */
  int heads;                   /* with matrices of their own, which segments are the columns of; 0: there are none */
  int64_t head_columns;        /* results of one */
  int takes_runs;              /* neighbouring items go to one worker: their weights are one stream */
  int keeps_rows;              /* items of the same rows follow one another: rows cost something */
  int min_items;               /* of other workers' rows that have to be left before a worker takes some */
} ItemsConfig;

typedef struct GemmItem {
  int64_t m0, mn;       /* rows */
  int64_t across;       /* block of columns, of all segments */
  int64_t next_m0;      /* rows of the item that this worker is likely to take next */
  int64_t expert;
} GemmItem;

/* Where a worker is. */
typedef struct GemmItems {
  const tw_launch *launch;
  int64_t worker, workers, rows, across, height, down;
  int64_t at, left;                /* of a run */
  int64_t turn, lanes, is_begun;   /* of blocks of rows */
  int64_t expert, begin, passed;
} GemmItems;

TW_FN int64_t tw_blocks(int64_t of, int64_t block) { return (of + block - 1) / block; }
/* Rows of each of the fewest blocks. */
TW_FN int64_t tw_even_rows(const ItemsConfig config, int64_t rows) {
  const int64_t blocks = tw_blocks(rows, config.block_rows);
  return blocks == 0 ? 0 : tw_blocks(tw_blocks(rows, blocks), config.tile_rows) * config.tile_rows;
}

TW_FN GemmItems tw_items(const ItemsConfig config, const tw_launch *launch, int32_t worker, int32_t workers) {
  TW_LIMIT(config.tile_rows > 0 && config.block_rows % config.tile_rows == 0);
  GemmItems items = { .launch = launch, .worker = worker, .workers = workers };
  for (int s = 0; s < config.segment_count; s++)
    items.across += tw_blocks(config.segments[s].columns, config.segments[s].block);
  if (config.heads > 0) items.across *= config.heads;
  if (config.experts == 0) {
    items.rows = launch->extents[config.rows];
    items.height = tw_even_rows(config, items.rows);
    items.down = items.height == 0 ? 0 : tw_blocks(items.rows, items.height);
    const int64_t most = items.down < workers ? items.down : workers;
    items.lanes = most < TW_COUNTERS ? most : TW_COUNTERS;
  }
  return items;
}

/* Item `at` of `down` blocks of rows from `begin` on, which end before `end`. */
TW_FN GemmItem tw_place_item(const ItemsConfig config, const GemmItems *items, int64_t at, int64_t begin, int64_t end) {
  GemmItem item = { .expert = items->expert - 1 };
  const int64_t down = config.keeps_rows ? at / items->across : at % items->down;
  item.across = config.keeps_rows ? at % items->across : at / items->down;
  item.m0 = begin + down * items->height;
  item.mn = end - item.m0 < items->height ? end - item.m0 : items->height;
  item.next_m0 = begin + (at + items->workers) % items->down * items->height;
  return item;
}

TW_FN int64_t tw_take(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

/* Items of one expert follow one another. A worker takes them in order, so the expert only moves on. */
TW_FN int tw_next_of_expert(const ItemsConfig config, GemmItems *items, GemmItem *item) {
  const int32_t *const starts = (const int32_t *)items->launch->buffers[config.starts];
  int64_t at = tw_take(items->launch->next) - items->passed;
  while (at >= items->down * items->across) {
    at -= items->down * items->across;
    items->passed += items->down * items->across;
    items->down = 0;
    if (items->expert == config.experts) return 0;
    items->begin = starts[items->expert];
    const int64_t own = starts[++items->expert] - items->begin;
    items->height = tw_even_rows(config, own);
    items->down = items->height == 0 ? 0 : tw_blocks(own, items->height);
  }
  *item = tw_place_item(config, items, at, items->begin, starts[items->expert]);
  return 1;
}

/*
 * A run of neighbouring items is half of a fair share of those that are left: the weights of a run are one stream, and
 * all workers end together.
 */
TW_FN int tw_next_of_run(const ItemsConfig config, GemmItems *items, GemmItem *item) {
  if (items->left == 0) {
    const int64_t run = tw_take(items->launch->next);
    int64_t first = 0, count = 0;
    for (int64_t i = 0; i <= run; i++) {
      first += count;
      count = (items->down * items->across - first + 2 * items->workers - 1) / (2 * items->workers);
    }
    if (count == 0) return 0;
    items->at = first;
    items->left = count;
  }
  items->left--;
  *item = tw_place_item(config, items, items->at++, 0, items->rows);
  return 1;
}

/*
 * Workers begin with blocks of rows of their own, so that few rows are made ready twice, and go on with those of others
 * where more items are left than their rows cost.
 */
TW_FN int tw_next_of_rows(const ItemsConfig config, GemmItems *items, GemmItem *item) {
  for (; items->turn < items->lanes; items->turn++, items->is_begun = 0) {
    const int64_t lane = (items->worker * items->lanes / items->workers + items->turn) % items->lanes;
    const int64_t first = lane * items->down / items->lanes;
    const int64_t count = ((lane + 1) * items->down / items->lanes - first) * items->across;
    int64_t *const next = items->launch->next + lane;
    if (items->turn > 0 && !items->is_begun && __atomic_load_n(next, __ATOMIC_RELAXED) + config.min_items >= count)
      continue;
    items->is_begun = 1;
    const int64_t at = tw_take(next);
    if (at >= count) continue;
    *item = tw_place_item(config, items, first * items->across + at, 0, items->rows);
    return 1;
  }
  return 0;
}

/* Takes the next item; 0: there is none. */
TW_FN int tw_next_item(const ItemsConfig config, GemmItems *items, GemmItem *item) {
  if (config.experts > 0) return tw_next_of_expert(config, items, item);
  if (config.takes_runs) return tw_next_of_run(config, items, item);
  if (config.keeps_rows) return tw_next_of_rows(config, items, item);
  const int64_t at = tw_take(items->launch->next);
  if (at >= items->down * items->across) return 0;
  *item = tw_place_item(config, items, at, 0, items->rows);
  return 1;
}

/* An item's segment, and its columns there, of head `head`. */
typedef struct GemmColumns {
  const GemmSegment *segment;
  int64_t n0, nn, head;
} GemmColumns;

TW_FN GemmColumns tw_columns_of(const ItemsConfig config, int64_t across) {
  int s = 0;
  int64_t head = 0;
  if (config.heads > 0) {
    const int64_t blocks = tw_blocks(config.segments[0].columns, config.segments[0].block);
    head = across / blocks;
    across %= blocks;
  }
  for (; s + 1 < config.segment_count; s++) {
    const int64_t blocks = tw_blocks(config.segments[s].columns, config.segments[s].block);
    if (across < blocks) break;
    across -= blocks;
  }
  const GemmSegment *const segment = &config.segments[s];
  const int64_t n0 = across * segment->block, rest = segment->columns - n0;
  return (GemmColumns){ segment, n0, rest < segment->block ? rest : segment->block, head };
}

/* Gives the tile of an item to its epilogue. */
TW_FN void tw_end_item(
    const ItemsConfig config, const GemmColumns own, const tw_launch *launch, float *tile, const GemmItem *item,
    float *lines) {
  const GemmSegment *const segment = own.segment;
  int64_t c0 = own.n0 / segment->matrices, cn = own.nn / segment->matrices;
  if (config.heads > 0) {
    if (config.head_columns - c0 < cn) cn = config.head_columns - c0;
    c0 += own.head * config.head_columns;
  }
  if (cn > 0) segment->epilogue(launch, tile, item->m0, item->mn, c0, cn, lines);
}
