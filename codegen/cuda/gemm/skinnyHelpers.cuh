/*
 * Warps of a block of few rows that do not multiply (gemm/skinnyWgmma.cuh): they compute what epilogues read of a row,
 * and shrink rows for their adapters (adapter/shrinkers.cuh). Config is a SkinnyWgmmaConfig.
 */
#pragma once
#include "adapter/shrinkers.cuh"
#include "gemm/adapter.cuh"
#include "gemm/fewRows.cuh"
#include "lib/launch.cuh"
#include "lib/shared.cuh"

namespace tw {

/* Column tiles whose segments have adapters: the blocks of a row tile that share its pieces. */
template <int tile_n, class Segment> TW_CONSTEXPR int shrinking_tiles_of() {
  if constexpr (requires { Segment::shrunk_column; }) return ceil_div(Segment::columns, tile_n);
  else return 0;
}
template <int tile_n, class... Segments> constexpr int shrinking_tiles = (shrinking_tiles_of<tile_n, Segments>() + ...);
/* The number of column tile `across` among them, if it is one. */
template <int tile_n, class... Segments> TW_DEVICE int shrinking_place(int across) {
  int place = across, first = 0;
  const auto pass = [&](int tiles, int shrinking) {
    first += tiles;
    if (across >= first) place -= tiles - shrinking;
  };
  (pass(ceil_div(Segments::columns, tile_n), shrinking_tiles_of<tile_n, Segments>()), ...);
  return place;
}

/* A helper's number among shrinkers: first works are for those without values. */
template <auto config> TW_DEVICE int skinny_wgmma_shrinker(int helper) {
  constexpr int warps = config.shrinkers.warps, values = config.value_warps();
  return values < warps ? (helper + warps - values) % warps : helper;
}

/* What helper number `helper` of a block does: the row's values; and it shrinks rows, as block `place` of `blocks`. */
template <auto config, int blocks, class T, class Prologue>
TW_DEVICE void skinny_wgmma_help(const Prologue &prologue, const AdapterTile<T> &second, FewSlots &slots, int row0,
    int rows, int helper, int place, unsigned char *shared, float *values) {
  constexpr ShrinkersConfig shrinkers = config.shrinkers;
  const auto compute_values = [&] {
    if constexpr (config.row_values > 0) {
      constexpr int warps = config.value_warps(), of_warp = (config.tile_m + warps - 1) / warps;
      if (warps == config.helper_warps() || helper < warps)
        row_values<config, warps, of_warp < 16 ? of_warp : 16>(prologue, helper, row0, rows, values);
    }
  };
  if constexpr (!shrinkers.is_there()) {
    wait_for_previous();
    compute_values();
    if constexpr (requires { prologue.beside(0); }) prologue.beside(helper - config.own_warps());
  } else {
    static_assert(shrinkers.warps >= config.value_warps() && shrinkers.blocks >= blocks);
    ShrinkGroups &groups = *(ShrinkGroups *)(shared + config.groups_at());
    auto &tile = prologue.state.tiles[row0 / config.tile_m];
    const int shrinker = skinny_wgmma_shrinker<config>(helper);
    if (rows > SHRINKERS_ROWS) trap();
    if (shrinker == 0) {
      find_slots(second.slots, row0, rows, config.tile_m, slots);
      __syncwarp();
      find_groups(slots, config.tile_m, groups);
    }
    named_sync<32 * shrinkers.warps>(SHRINKERS);
    ShrinkBatch<shrinkers> y;
    if (slots.count > 0) {
      using Works = ShrinkWorks<shrinkers, blocks>;
      using Pieces = ShrinkPieces<config.k, shrinkers>;
      const int own = Works::first(shrinker, place);
      if (own < groups.count * Pieces::of_group) {
        const ShrinkPiece piece = Pieces::at(own);
        shrink_load_factors<config.k>(prologue.factors, groups.slot[piece.group], piece,
            ShrinkParts<config.k>::first(piece.part), y);
      }
      shrink_prefetch_behind<config.k, shrinkers>(prologue.factors, groups, own, Works::step);
      if (shrinker == shrinkers.warps - 1)
        shrink_prefetch_numbers<shrinkers, config.adapter.rank>(prologue.scale, groups, tile, place);
    }
    if (shrinker == shrinkers.warps - 1) {
      ShrinkKnown &known = *(ShrinkKnown *)(shared + config.known_at());
#pragma unroll 1
      for (int local = 0; local < SHRINKERS_ROWS; local += 16) {
        const unsigned long long here = local < config.tile_m ? slots_of_rows(slots, local) : 0;
        if (threadIdx.x % 32 == 0) known.slots_here[local / 16] = here;
      }
      if (threadIdx.x % 32 == 0) Barrier{ shared_address(&known) }.arrive();
    }
    wait_for_previous();
    /* Where some have no values, these take the pieces meanwhile. */
    constexpr bool begins_with_values = config.value_warps() < shrinkers.warps;
    if constexpr (begins_with_values) compute_values();
    if (slots.count > 0) {
      const unsigned launch = look(&tile.launches[place]) + 1;
      Shrinkers<config.k, shrinkers, config.tile_m, config.adapter.rank, T, Prologue> own{ prologue, groups, slots,
        tile, row0, launch, SHRINKERS_PATIENCE };
      own.template run<blocks>(shrinker, place, second.shrunk_column, second.shrunk_columns,
          (T *)(shared + config.shrunk_at()), y);
      named_arrive<32 * (config.consumer_warps() + shrinkers.warps)>(SHRUNK_READY);
      shrinkers_end<shrinkers>(tile, helper, place, launch);
    }
    if constexpr (!begins_with_values) compute_values();
  }
}

}  // namespace tw
