/*
 * The first factor of adapters in a product of many rows on Hopper (gemm/hopper.cuh): before they multiply, consumers
 * of all blocks compute u = round(s·A·x) of the call's rows, while the ring fills. The bits are those of a shrink
 * kernel. What that would cost beside its bytes is one kernel more between this one and the one before: 3 to 4 µs.
 *
 * A work is eight rows and eight columns of u. Each of a block's eight consumer warps sums one range of k, and the
 * first adds the ranges up and stores u in memory. Blocks take works by turns. Factors of a block's first work come to
 * registers before the kernel before has ended.
 *
 * Producers read u by TMA, behind k, once all works of the call are done. These are counted, and as a rule done by
 * then. Where they are not, another warp of the block, which watches when it has nothing more urgent to do, says when
 * they are. No block counts on another that may not have begun: a warp that has watched for long does all works itself.
 * Whoever does them, the bits are the same. The last block to have seen it sets the numbers back; launches of a unit do
 * not overlap behind the wait for the kernel before.
 */
#pragma once
#include "adapter/shrinkers.cuh"
#include "lib/copy.cuh"

namespace tw {

/* Warps that shrink, rows and columns of a work, and bytes of its sums in shared memory. */
constexpr int SHRINK_WARPS = SHRINK_RANGES, SHRINK_TILE = 8,
              SHRINK_SUMS_BYTES = SHRINK_WARPS * SHRINK_TILE * SHRINK_TILE * 4;
/*
 * Named barriers: of the warps that shrink; of these and the producer's, once their works are counted; of the
 * producer's and the warp that watches, once u is there.
 */
constexpr int SHRINKING_FIRST = 5, COUNTED_FIRST = 4, SHRUNK_FIRST = 6;
/* Looks at the number of works done, each of them half a microsecond or more, before all are done again. */
constexpr int SHRINK_FIRST_PATIENCE = 2048;

/* In memory of the unit, zeros between launches: works done, and blocks that have left. */
struct ShrinkCount {
  unsigned done, left;
};

/* See ShrinkBuffers of adapter/shrink.cuh. */
template <class T> struct ShrinkFirst {
  const T *rows;
  const int *slots;
  const T *factors;
  const float *scale;
  T *out;
  ShrinkCount *count;
};

/* The prologue of a product that shrinks its rows first. */
template <class Prologue, class T> struct ShrinkingFirst : Prologue {
  using Type = T;
  ShrinkFirst<T> first;
};

/* `k`, ranks and `stride`, the elements from row to row of u: of the product. */
template <int k, int rank, int stride, ShrinkersConfig config, class T> struct FirstShrinker {
  using Parts = ShrinkParts<k>;
  static constexpr int across = config.columns / SHRINK_TILE;
  static_assert(config.columns % SHRINK_TILE == 0 && rank % SHRINK_TILE == 0);

  /* The warp that watches has few registers. */
  static constexpr ShrinkersConfig one_by_one = { config.warps, config.columns, config.own_columns, config.a_stride,
    config.w_stride, config.w_rows, 1, config.blocks };

  const ShrinkFirst<T> &own;
  int rows;

  TW_DEVICE int works() const { return ceil_div(rows, SHRINK_TILE) * across; }
  TW_DEVICE static ShrinkPiece piece_at(int work, int part) { return { 0, work % across * SHRINK_TILE, part }; }
  /* The slot of the lane's row of a work. */
  TW_DEVICE int slot_of(int work) const {
    const int row = work / across * SHRINK_TILE + thread_again() % 32 / 4;
    return row < rows ? own.slots[row] : NO_SLOT;
  }
  /* One of the slots of `left` lanes, which it takes from them, and whether the lane's row has it. */
  TW_DEVICE static int take_slot(unsigned &left, int slot, bool &is_own) {
    const int first = __shfl_sync(ALL_LANES, slot, __ffs((int)left) - 1);
    is_own = slot == first;
    left &= ~__ballot_sync(ALL_LANES, is_own);
    return first;
  }

  /*
   * The lane's two sums of range `range` of a work, of the rows that have `slot`. `y`: factors of its first batch,
   * where they are there.
   */
  template <ShrinkersConfig loads>
  TW_DEVICE float2 sum_of(int work, int range, int slot, bool is_own, bool has_factors,
      ShrinkBatch<loads> &y) const {
    constexpr int batch = loads.batch;
    const T *const row =
        own.rows + (long long)(work / across * SHRINK_TILE + thread_again() % 32 / 4) * config.a_stride;
    /* No bit is set, which no compiler knows. */
    const unsigned no_bits = (unsigned)blocks_again() >> 30;
    float2 sum = { 0.0f, 0.0f };
#pragma unroll 1
    for (int p = 0; p < Parts::of_range; p++) {
      const ShrinkPiece piece = piece_at(work, range * Parts::of_range + p);
      const int end = Parts::end(piece.part);
      float acc[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll 1
      for (int at = Parts::first(piece.part); at < end; at += batch * SHRINK_STEP) {
        ShrinkBatch<loads> x;
        shrink_load_batch<k, loads>(row, at, end, is_own, x);
        if (!has_factors) shrink_load_factors<k>(own.factors, slot, piece, at, y);
        has_factors = false;
        shrink_add_batch<T>(x.of, y.of, no_bits, acc);
      }
      sum = p == 0 ? float2{ acc[0], acc[1] } : shrink_sum(sum, { acc[0], acc[1] });
    }
    return sum;
  }

  /* Stores u of two columns of the lane's row. */
  TW_DEVICE void store(int work, int slot, const float2 &sum) const {
    const int lane = thread_again() % 32, row = work / across * SHRINK_TILE + lane / 4,
              column = work % across * SHRINK_TILE + 2 * (lane % 4);
    const float by = own.scale[slot * (config.columns / rank) + column / rank];
    store2(own.out + (long long)row * stride + column, mul(sum.x, by), mul(sum.y, by));
  }

  /* By all consumers, of which this is warp `warp`. `sums`: SHRINK_SUMS_BYTES of shared memory. */
  TW_DEVICE void run(int warp, float2 *sums) const {
    const int lane = thread_again() % 32;
    unsigned done = 0;
    bool has_waited = false;
#pragma unroll 1
    for (int work = (int)blockIdx.x; work < works(); work += blocks_again()) {
      const int slot = slot_of(work);
      unsigned left = __ballot_sync(ALL_LANES, slot != NO_SLOT);
      done++;
#pragma unroll 1
      while (left != 0) {
        bool is_own;
        const int one = take_slot(left, slot, is_own);
        ShrinkBatch<config> y;
        const ShrinkPiece piece = piece_at(work, warp * Parts::of_range);
        shrink_load_factors<k>(own.factors, one, piece, Parts::first(piece.part), y);
        if (!has_waited) wait_for_previous();
        has_waited = true;
        sums[warp * 32 + lane] = sum_of(work, warp, one, is_own, true, y);
        named_sync<32 * SHRINK_WARPS>(SHRINKING_FIRST);
        if (warp == 0 && is_own) {
          float2 sum = sums[lane];
#pragma unroll
          for (int r = 1; r < SHRINK_RANGES; r++) sum = shrink_sum(sum, sums[r * 32 + lane]);
          store(work, one, sum);
        }
        /* The next sums go where these were. */
        if (left != 0 || work + blocks_again() < works()) named_sync<32 * SHRINK_WARPS>(SHRINKING_FIRST);
      }
    }
    wait_for_previous();
    if (warp == 0) {
      __syncwarp();
      if (lane == 0 && done > 0) {
        fence_all();
        atomicAdd(&own.count->done, done);
      }
    }
    named_arrive<32 * (SHRINK_WARPS + 1)>(COUNTED_FIRST);
  }

  TW_DEVICE bool are_done() const { return __all_sync(ALL_LANES, look(&own.count->done) == (unsigned)works()); }

  /* By the block's warp that watches. */
  TW_DEVICE void watch() const {
    wait_for_previous();
    bool is_done = are_done();
#pragma unroll 1
    for (int looks = 1; !is_done && looks < SHRINK_FIRST_PATIENCE; looks++) {
      rest_shortly();
      is_done = are_done();
    }
    if (!is_done) run_alone();
    fence_all();
    named_arrive<64>(SHRUNK_FIRST);
  }

  /* By the producer's warp: waits until u is there. Copies of it may follow. Whether it has met the watching warp. */
  TW_DEVICE bool await() const {
    const bool is_late = !are_done();
    if (is_late) named_sync<64>(SHRUNK_FIRST);
    else fence_all();
    fence_async_memory();
    return is_late;
  }
  /* By the producer's warp: sets the numbers back once no block looks again, and all works are counted. */
  TW_DEVICE void leave(bool has_met) const {
    if (!has_met) named_sync<64>(SHRUNK_FIRST);
    named_sync<32 * (SHRINK_WARPS + 1)>(COUNTED_FIRST);
    if (thread_again() % 32 == 0) {
      fence_all();
      if (atomicAdd(&own.count->left, 1u) == (unsigned)blocks_again() - 1) own.count->done = own.count->left = 0;
    }
  }

  TW_DEVICE void run_alone() const {
#pragma unroll 1
    for (int work = 0; work < works(); work++) {
      const int slot = slot_of(work);
      unsigned left = __ballot_sync(ALL_LANES, slot != NO_SLOT);
#pragma unroll 1
      while (left != 0) {
        bool is_own;
        const int one = take_slot(left, slot, is_own);
        float2 sum = { 0.0f, 0.0f };
#pragma unroll 1
        for (int r = 0; r < SHRINK_RANGES; r++) {
          ShrinkBatch<one_by_one> y;
          const float2 more = sum_of(work, r, one, is_own, false, y);
          sum = r == 0 ? more : shrink_sum(sum, more);
        }
        if (is_own) store(work, one, sum);
      }
    }
  }
};

}  // namespace tw
