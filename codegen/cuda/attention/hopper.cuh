/*
 * Attention of prompts by warpgroup products: sm_90a, queries, keys and values in bf16, heads of 64 or 128.
 *
 * A tile has 128 rows: `queries` queries of the heads that share one head of keys, so that a key is loaded once for all
 * of them. Row r is head r % group of query r / group; each of two warpgroups multiplies 64 rows. The warps of a third
 * one load (attention/hopperLoads.cuh): one is a tile ahead, finds out what its queries see, and copies them; one loads
 * keys, one values, and one helps with keys. So a block never waits between tiles.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. A part is 64 entries of a run's list, two parts are a chunk. Runs whose lists begin
 * alike, as questions after the same examples do, share their first chunks: those are loaded and multiplied once, for
 * the queries of all these runs.
 *
 * Two orders of products have the same bits: by chunks (attention/hopperChunks.cuh), and by parts
 * (attention/hopperParts.cuh), by which more products are under way.
 *
 * The bits of an answer are those of the kernels on mma.sync (attention/path.cuh): keys are taken in order of position,
 * 16 a step of a product, TILE_KEYS a step of the softmax, CHUNK a partial result. A row that does not see a chunk adds
 * exact zeros. If a result of a tile is not finite, the tile is repeated query by query, with zeros in place of the
 * keys that the query does not see.
 *
 * Grid: a block for each multiprocessor, which takes every so many tiles of the queries of each head of keys. Memory
 * and barriers of a block: attention/hopperTile.cuh.
 */
#pragma once
#include "attention/hopperChunks.cuh"
#include "attention/hopperLoads.cuh"
#include "attention/hopperParts.cuh"

namespace tw {

template <PathConfig config, class Operands>
TW_DEVICE void hopper_attention(const Operands &x, const TensorMap *keys_map, const TensorMap *values_map) {
  TW_DYNAMIC_SHARED(dynamic, 128);
  __shared__ PromptShared<config> shared;
  const int warpgroup = uniform((int)threadIdx.x >> 7);
  const unsigned memory = (array_address(dynamic) + 1023u) & ~1023u;
  const PromptBarriers<config> bars(memory);
  if (threadIdx.x == 0) {
    bars.init();
    shared.first_bad = 0x7fffffff;
    shared.last_bad = -1;
  }
  await_previous();
  __syncthreads();
  const PromptTiles<config> tiles(shared, x.rows);
  if (warpgroup == 0) {
    give_registers<config.loader_registers>();
    PromptLoads<config, Operands>(x, keys_map, values_map, shared, memory, bars, tiles).run();
    return;
  }
  take_registers<config.product_registers>();
  if constexpr (config.products == Products::ByChunks) {
    PromptChunks<config, Operands> products(x, shared, memory, bars, tiles, warpgroup - 1);
    products.template take_tiles<true>(tiles.has_tile(), [&] { products.multiply(); });
  } else {
    PromptParts<config, Operands> products(x, shared, memory, bars, tiles, warpgroup - 1);
    const bool is_more = products.template take_tiles<false>(tiles.has_tile(), [&] { products.multiply(); });
    PromptChunks<config, Operands> repeated(products);
    repeated.template take_tiles<true>(is_more, [&] { repeated.multiply(); });
  }
}

}  // namespace tw
