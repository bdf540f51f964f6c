/*
 * Attention over paths whose values are the first columns of their keys, and whose heads share one head of keys: latent
 * attention. A key is head_dim columns of k and `tail` columns of k_tail; it lies once in shared memory.
 *
 * A group of four warps has 16 rows: heads of one query. Of scores each warp multiplies a quarter of the columns of
 * keys, with its part of the queries in registers; the four parts are added up in their order through shared memory.
 * All warps of the group then have all scores, compute the same weights, and multiply these with a quarter of the
 * values' columns. Groups of a block share tiles of keys; those whose queries have another path take them in turn.
 *
 * Blocks of a cluster take streams (attention/latentResults.cuh) in turn, and each adds up some columns of all of them:
 *
 * - A block alone takes even streams, then odd ones, while the result of the even ones waits in shared memory.
 * - Each of two blocks has one of these two results, which it sends when it is complete.
 * - More blocks send streams, in rounds of one of each block. Two buffers for those of a round are enough: who sends
 *   them has added the ones of the round before, so everybody has sent these, and had added the ones before them.
 *
 * Shared memory: the slots of keys, parts of scores, results that are kept or exchanged, of a cluster two barriers.
 *
 * Grid: `cluster` blocks for each 16 heads of a query, or for `queries` queries of at most 16 heads.
 */
#pragma once
#include "attention/latentResults.cuh"
#include "lib/barrier.cuh"

namespace tw {

template <PathConfig config> struct LatentLayout {
  static constexpr int depth = config.head_dim + config.tail, groups = config.warps / 4;
  /* Steps of a product that a warp makes of scores, and columns of values that it has. */
  static constexpr int steps = depth / 64, columns = config.head_dim / 4;
  /* Of odd pieces of 16 bytes, eight rows at one column lie in different banks. */
  static constexpr unsigned row_bytes = depth * 2 + 16, tile_bytes = TILE_KEYS * row_bytes;
  static constexpr unsigned parts_at = config.slots * tile_bytes, group_bytes = 4 * 4 * 32 * 16;
  static constexpr unsigned rounds_at = parts_at + groups * group_bytes;
  static constexpr unsigned round_bytes =
      config.cluster > 1 ? config.cluster * LatentChunk<config>::bytes : groups * LatentAnswer<config>::kept_bytes;
  static constexpr unsigned barriers_at = rounds_at + (config.cluster > 2 ? 2 : 1) * round_bytes;
  static_assert(depth % 64 == 0 && config.head_dim % 64 == 0 && config.warps % 4 == 0 && config.kv_heads == 1);
  static_assert(config.cluster == 1 || (groups == 1 && config.head_dim % (16 * config.cluster) == 0));
  static_assert(config.heads <= 16 || groups == 1, "groups have a query each");
  static_assert(barriers_at + (config.cluster > 1 ? 16 : 0) <= config.shared_bytes, "memory is what a schedule says");
};

template <PathConfig config, class Operands> TW_DEVICE void latent_attention(const Operands &x) {
  using Layout = LatentLayout<config>;
  using Key = typename Operands::KeyType;
  constexpr int d = config.head_dim, groups = Layout::groups, threads = 128 * groups, slots = config.slots;
  constexpr int steps = Layout::steps;
  constexpr int parts_of_query = (config.heads + 15) / 16;
  static_assert(sizeof(Key) == 2 && slots >= 2);
  TW_DYNAMIC_SHARED(memory, 128);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32 % 4, group = thread / 128;
  const int rank = (int)blockIdx.x % config.cluster, block = (int)blockIdx.x / config.cluster;
  const int first = block / parts_of_query * groups, head0 = block % parts_of_query * 16;
  const unsigned shared = array_address(memory);
  const Barriers round_barriers{ shared + Layout::barriers_at };
  if constexpr (config.cluster > 1) {
    if (thread == 0) {
      round_barriers[0].init(1);
      round_barriers[1].init(1);
      show_barriers();
    }
    cluster_arrive_relaxed();
    cluster_wait();
  }
  Path paths[groups];
#pragma unroll
  for (int i = 0; i < groups; i++) {
    paths[i] = Path{ -1, -1, 0, 0 };
    if (first + i < x.rows) paths[i] = path_of<config>(x, first + i);
  }
  Path own = paths[0];
#pragma unroll
  for (int i = 1; i < groups; i++) if (group == i) own = paths[i];

  /* The warp's columns of the queries of rows lane / 4 and 8 below. */
  unsigned query[steps][4];
#pragma unroll
  for (int i = 0; i < steps; i++) {
    const int column = (warp * steps + i) * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int head = head0 + lane / 4 + 8 * half;
      const bool is_there = own.token >= 0 && head < config.heads;
      const auto *const from = (column < d
          ? x.q + own.token * (long long)config.q_stride + head * d + column
          : x.q_tail + own.token * (long long)config.q_tail_stride + head * config.tail + column - d) + lane % 4 * 2;
      query[i][half] = is_there ? *(const unsigned *)from : 0u;
      query[i][half + 2] = is_there ? *(const unsigned *)(from + 8) : 0u;
    }
  }
  /* Where this lane reads keys as an operand, and values. */
  const unsigned keys_at = shared + ((lane >> 4) * 8 + (lane & 7)) * Layout::row_bytes + ((lane >> 3) & 1) * 16 +
      warp * steps * 32;
  const unsigned values_at = shared + (lane & 15) * Layout::row_bytes + (lane >> 4) * 16 + warp * Layout::columns * 2;
  float4 *const parts = (float4 *)(memory + Layout::parts_at + group * Layout::group_bytes) + lane;

  for (int from = 0, to; from < groups; from = to) {
    int keys = paths[from].keys;
    for (to = from + 1; to < groups && paths[to].begin == paths[from].begin; to++) keys = max(keys, paths[to].keys);
    if (keys <= 0) continue;
    const int begin = paths[from].begin, last = group >= from && group < to ? own.keys - 1 : -1;
    const int tiles = (keys + TILE_KEYS - 1) / TILE_KEYS, streams = streams_of(keys);
    LatentWalk<config.cluster> ahead(rank, streams, tiles);
    /* Eight threads copy a row. */
    constexpr int rows_at_once = threads / 8, passes = TILE_KEYS / rows_at_once;
    int places[passes];
    const auto find = [&] {
#pragma unroll
      for (int p = 0; p < passes; p++) {
        const int i = ahead.tile * TILE_KEYS + p * rows_at_once + thread / 8;
        places[p] = i < keys ? x.key[begin + i] : -1;
      }
    };
    const auto start = [&](int slot) {
#pragma unroll
      for (int p = 0; p < passes; p++) {
        const int at = p * rows_at_once + thread / 8, place = max(places[p], 0), bytes = places[p] < 0 ? 0 : 16;
        const Key *const k = x.k + place * (long long)config.k_stride + thread % 8 * 8;
        const Key *const tail = x.k_tail + place * (long long)config.k_tail_stride + thread % 8 * 8;
        const unsigned row = shared + slot * Layout::tile_bytes + at * Layout::row_bytes + thread % 8 * 16;
#pragma unroll
        for (int j = 0; j < Layout::depth / 64; j++)
          copy16(row + j * 128, j < d / 64 ? k + j * 64 : tail + (j - d / 64) * 64, bytes);
      }
    };
#pragma unroll
    for (int n = 0; n < slots - 1; n++) {
      find();
      if (ahead.is_there()) start(n);
      copy_commit();
      ahead.go_on();
    }
    find();

    LatentAnswer<config> total;
    LatentSums<config> sums;
    unsigned char *const kept = memory + Layout::rounds_at + group * LatentAnswer<config>::kept_bytes;
    if constexpr (config.cluster > 1) sums.clear();
    if constexpr (config.cluster <= 2) total.clear();
    /* Adds up what blocks have sent in a round. */
    const auto add_round = [&](int round) {
      const int count = min(streams - round * config.cluster, config.cluster);
      const Barrier there = round_barriers[round % 2];
      if (thread == 0) there.expect(count * LatentChunk<config>::bytes);
      there.wait(round / 2 % 2);
      sums.add(memory + Layout::rounds_at + (config.cluster > 2 ? round % 2 * Layout::round_bytes : 0), count, thread);
    };
    const auto send = [&](const LatentAnswer<config> &x, int round) {
      const unsigned to = shared + Layout::rounds_at + (config.cluster > 2 ? round % 2 * Layout::round_bytes : 0);
      LatentChunk<config>::send(x, to + rank * LatentChunk<config>::bytes, round_barriers[round % 2].at, warp, lane);
    };
    int slot = 0;
    /* More than two blocks add the streams of the last round in one more. */
    for (int round = 0, stream = rank; config.cluster > 2 ? stream - rank < streams + config.cluster : stream < streams;
        round++, stream = next_stream<config.cluster>(stream, streams)) {
      if constexpr (config.cluster == 1) {
        if (stream == 1) {
          total.keep(kept, thread % 128);
          total.clear();
        }
      }
      LatentAnswer<config> answer;
      answer.clear();
      for (int tile = stream < streams ? stream * CHUNK_TILES : tiles; tile < tiles; tile = next_of_stream(tile)) {
        copy_wait<slots - 2>();
        __syncthreads();  /* The tile is there, the one before has been read. */
        if (ahead.is_there()) start(slot == 0 ? slots - 1 : slot - 1);
        copy_commit();
        ahead.go_on();
        find();
        const unsigned at = slot * Layout::tile_bytes;
        slot = slot == slots - 1 ? 0 : slot + 1;
        const int key = tile * TILE_KEYS;
        if (key > last) continue;
        Scores s;
#pragma unroll
        for (int i = 0; i < TILE_KEYS / 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < steps; i++) {
#pragma unroll
          for (int j = 0; j < TILE_KEYS / 16; j++) {
            unsigned b[4];
            ldmatrix_x4(b, keys_at + at + j * 16 * Layout::row_bytes + i * 32);
            mma<Key>(s[2 * j], query[i], b[0], b[1]);
            mma<Key>(s[2 * j + 1], query[i], b[2], b[3]);
          }
        }
#pragma unroll
        for (int i = 0; i < TILE_KEYS / 8; i++)
          parts[(warp * 4 + i) * 32] = float4{ s[i][0], s[i][1], s[i][2], s[i][3] };
        /* The parts of scores are there. */
        if constexpr (groups > 1) named_sync(group + 1, 128); else __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE_KEYS / 8; i++) {
          const float4 a = parts[i * 32], b = parts[(4 + i) * 32], c = parts[(8 + i) * 32], e = parts[(12 + i) * 32];
          s[i][0] = add(add(add(a.x, b.x), c.x), e.x);
          s[i][1] = add(add(add(a.y, b.y), c.y), e.y);
          s[i][2] = add(add(add(a.z, b.z), c.z), e.z);
          s[i][3] = add(add(add(a.w, b.w), c.w), e.w);
        }
        if (key + TILE_KEYS - 1 > last) {
          const int ends[2] = { last, last };
          mask<config>(s, key, ends);
        }
        Weights weight;
        answer.template weigh<Key>(weight, s);
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 16; j++) {
#pragma unroll
          for (int i = 0; i < Layout::columns / 16; i++) {
            unsigned b[4];
            ldmatrix_x4_trans(b, values_at + at + j * 16 * Layout::row_bytes + i * 32);
            mma<Key>(answer.o[2 * i], weight[j], b[0], b[1]);
            mma<Key>(answer.o[2 * i + 1], weight[j], b[2], b[3]);
          }
        }
      }
      answer.end();
      if constexpr (config.cluster <= 2) {
        if (stream * CHUNK <= last) total.add(answer);
      } else {
        if (round > 0) add_round(round - 1);
        __syncthreads();  /* Streams of the round before have been added. */
        if (stream < streams) send(answer, round);
      }
    }
    if constexpr (config.cluster == 1) {
      if (streams > 1) total.add_to_kept(kept, thread % 128);
    } else if constexpr (config.cluster == 2) {
      if (rank < streams) send(total, 0);
      add_round(0);
    }
    auto *const row = x.out + (first + group) * (long long)config.out_stride;
    if constexpr (config.cluster > 1) sums.store(row, head0, rank, thread);
    else if (last >= 0) store_latent<config>(total, row, head0, warp, lane);
    if constexpr (groups > 1) {
      copy_wait<0>();
      __syncthreads();  /* Everybody has read the last tile: keys of the next path may come. */
    }
  }
}

}  // namespace tw
