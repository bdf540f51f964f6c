/*
 * Attention over paths whose values are the first columns of their keys, and whose heads share one head of keys: latent
 * attention. A key is head_dim columns of k and `tail` columns of k_tail; it lies once in shared memory.
 *
 * A group of four warps has 16 rows: heads of one query. Of scores each warp multiplies a quarter of the columns of
 * keys, with its part of the queries in registers; the four parts are added up in their order through shared memory.
 * All warps of the group then have all scores, compute the same weights, and multiply these with a quarter of the
 * values' columns. Groups of a block share tiles of keys; those whose queries have another path take them in turn.
 *
 * Of every LATENT_STREAMS chunks of CHUNK keys, the same one of each makes one partial result, a stream; streams are
 * merged in order, so that they are sent once, however long a path is. The blocks of a cluster take streams in turn,
 * and each adds up some columns of all of them: the bits depend on the query and its path alone.
 * Two buffers for the chunks of a round are enough: who sends those of a round has added the ones of the round before,
 * so everybody has sent these, and had added the ones before them.
 *
 * Shared memory: the slots of keys, parts of scores, the chunks of two rounds, two barriers.
 *
 * Grid: `cluster` blocks for each 16 heads of a query, or for `queries` queries of at most 16 heads.
 */
#pragma once
#include "attention/path.cuh"
#include "lib/barrier.cuh"

namespace tw {

constexpr int LATENT_STREAMS = 8, CHUNK_TILES = CHUNK / TILE_KEYS;

/* The tile behind one of its stream. */
TW_DEVICE int next_of_stream(int tile) {
  return tile + 1 + ((tile + 1) % CHUNK_TILES == 0 ? (LATENT_STREAMS - 1) * CHUNK_TILES : 0);
}
TW_DEVICE int streams_of(int keys) { return min((keys + CHUNK - 1) / CHUNK, LATENT_STREAMS); }

/* A block's tiles: those of every `cluster`-th stream. From `tiles` on there is none. */
template <int cluster> struct LatentWalk {
  int stream, tiles, tile;
  TW_DEVICE LatentWalk(int rank, int tiles) : stream(rank), tiles(tiles), tile(first()) {}
  TW_DEVICE int first() const { return stream < LATENT_STREAMS ? stream * CHUNK_TILES : tiles; }
  TW_DEVICE bool is_there() const { return tile < tiles; }
  TW_DEVICE void go_on() {
    tile = next_of_stream(tile);
    if (tile < tiles) return;
    stream += cluster;
    tile = first();
  }
};

/*
 * A chunk's result as a lane has it: columns of rows lane / 4 and 8 below, their maxima and sums. Weights of every 8
 * keys of a tile have a sum of their own, and the four are added up when the chunk ends: a warp may have eight keys.
 */
template <PathConfig config> struct LatentAnswer {
  float o[config.head_dim / 32][4], top[2], sum[2], sums[TILE_KEYS / 8][2];

  TW_DEVICE void clear() {
    top[0] = top[1] = -infinity();
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) sums[n][0] = sums[n][1] = 0.0f;
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
  }
  /* Ends the chunk. */
  TW_DEVICE void end() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float parts[TILE_KEYS / 8];
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) parts[n] = quad_sum(sums[n][half]);
      sum[half] = tw::add(tw::add(tw::add(parts[0], parts[1]), parts[2]), parts[3]);
    }
  }
  /* Adds the chunk that follows. */
  TW_DEVICE void add(const LatentAnswer &chunk) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float most = fmaxf(top[half], chunk.top[half]);
      const float before = power2(top[half] - most), now = power2(chunk.top[half] - most);
      top[half] = most;
      sum[half] = fmaf(chunk.sum[half], now, mul(sum[half], before));
#pragma unroll
      for (int i = 0; i < config.head_dim / 32; i++) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) o[i][e] = fmaf(chunk.o[i][e], now, mul(o[i][e], before));
      }
    }
  }
  /* A step of the softmax: weights of a tile from its scores. */
  template <class Key> TW_DEVICE void weigh(Weights &weight, const Scores &s) {
    float most[2] = { s[0][0], s[0][2] };
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
      for (int half = 0; half < 2; half++) most[half] = fmaxf(most[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[half] = quad_max(most[half]);
      most[half] = fmaxf(top[half], ceilf(mul(most[half], config.scale)));
    }
    if (__any_sync(ALL_LANES, most[0] != top[0] || most[1] != top[1])) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float keep = power2(top[half] - most[half]);
        top[half] = most[half];
#pragma unroll
        for (int n = 0; n < TILE_KEYS / 8; n++) sums[n][half] = mul(sums[n][half], keep);
#pragma unroll
        for (int i = 0; i < config.head_dim / 32; i++) {
          o[i][2 * half] = mul(o[i][2 * half], keep);
          o[i][2 * half + 1] = mul(o[i][2 * half + 1], keep);
        }
      }
    }
    const float shift[2] = { top[0] == -infinity() ? 0.0f : -top[0], top[1] == -infinity() ? 0.0f : -top[1] };
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) {
      float w[4];
#pragma unroll
      for (int e = 0; e < 4; e++) w[e] = exp2_flushed(fmaf(s[n][e], config.scale, shift[e / 2]));
      sums[n][0] = tw::add(sums[n][0], tw::add(w[0], w[1]));
      sums[n][1] = tw::add(sums[n][1], tw::add(w[2], w[3]));
      weight[n / 2][n % 2 * 2] = pack<Key>(w[0], w[1]);
      weight[n / 2][n % 2 * 2 + 1] = pack<Key>(w[2], w[3]);
    }
  }
};

/* A chunk as blocks of a cluster send it to each other: columns that one adds up, of 16 rows, then maxima and sums. */
template <PathConfig config> struct LatentChunk {
  static constexpr int own_columns = config.head_dim / config.cluster, pairs = 16 * own_columns / 2 / 128;
  static constexpr unsigned ends_at = 16 * own_columns * 4, bytes = ends_at + 16 * 8;

  /* Sends an answer to the blocks that add it up, to address `to` of each, whose bytes count at barrier `bar`. */
  TW_DEVICE static void send(const LatentAnswer<config> &answer, unsigned to, unsigned bar, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; i++) {
      const int column = warp * (config.head_dim / 4) + i * 8 + lane % 4 * 2, owner = column / own_columns;
      const unsigned place = to + (lane / 4 * own_columns + column % own_columns) * 4;
      send2(place, owner, bar, answer.o[i][0], answer.o[i][1]);
      send2(place + 8 * own_columns * 4, owner, bar, answer.o[i][2], answer.o[i][3]);
    }
    if (warp == 0) {
      const unsigned place = to + ends_at + lane / 4 * 8;
      for (int owner = lane % 4; owner < config.cluster; owner += 4) {
        send2(place, owner, bar, answer.top[0], answer.sum[0]);
        send2(place + 64, owner, bar, answer.top[1], answer.sum[1]);
      }
    }
  }
};

template <PathConfig config> struct LatentLayout {
  static constexpr int depth = config.head_dim + config.tail, groups = config.warps / 4;
  /* Steps of a product that a warp makes of scores, and columns of values that it has. */
  static constexpr int steps = depth / 64, columns = config.head_dim / 4;
  /* Of odd pieces of 16 bytes, eight rows at one column lie in different banks. */
  static constexpr unsigned row_bytes = depth * 2 + 16, tile_bytes = TILE_KEYS * row_bytes;
  static constexpr unsigned parts_at = config.slots * tile_bytes, group_bytes = 4 * 4 * 32 * 16;
  static constexpr unsigned rounds_at = parts_at + groups * group_bytes;
  static constexpr unsigned round_bytes = config.cluster * LatentChunk<config>::bytes;
  static constexpr unsigned barriers_at = rounds_at + (config.cluster > 1 ? 2 * round_bytes : 0);
  static_assert(depth % 64 == 0 && config.head_dim % 64 == 0 && config.warps % 4 == 0 && config.kv_heads == 1);
  static_assert(config.cluster == 1 || (groups == 1 && config.head_dim % (16 * config.cluster) == 0));
  static_assert(config.heads <= 16 || groups == 1, "groups have a query each");
  static_assert(barriers_at + (config.cluster > 1 ? 16 : 0) <= config.shared_bytes, "memory is what a schedule says");
};

/* What blocks of a cluster add up, by pairs of columns of each of 128 threads: maximum, sum, and the two. */
template <PathConfig config> struct LatentSums {
  using Chunk = LatentChunk<config>;
  float top[Chunk::pairs], sum[Chunk::pairs];
  float2 o[Chunk::pairs];

  TW_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < Chunk::pairs; i++) {
      top[i] = -infinity();
      sum[i] = o[i].x = o[i].y = 0.0f;
    }
  }
  TW_DEVICE static int row_of(int i, int thread) { return (i * 128 + thread) / (Chunk::own_columns / 2); }
  TW_DEVICE static int column_of(int i, int thread) { return (i * 128 + thread) % (Chunk::own_columns / 2) * 2; }
  /* `count` chunks that lie one behind another. */
  TW_DEVICE void add(const unsigned char *chunks, int count, int thread) {
#pragma unroll
    for (int i = 0; i < Chunk::pairs; i++) {
#pragma unroll
      for (int w = 0; w < config.cluster; w++) {
        if (w >= count) break;
        const unsigned char *const chunk = chunks + w * Chunk::bytes;
        const float2 end = *(const float2 *)(chunk + Chunk::ends_at + row_of(i, thread) * 8);
        const float2 x = *(const float2 *)(chunk + (i * 128 + thread) * 8);
        const float most = fmaxf(top[i], end.x);
        const float before = power2(top[i] - most), now = power2(end.x - most);
        top[i] = most;
        sum[i] = fmaf(end.y, now, mul(sum[i], before));
        o[i].x = fmaf(x.x, now, mul(o[i].x, before));
        o[i].y = fmaf(x.y, now, mul(o[i].y, before));
      }
    }
  }
  /* Stores the block's columns of the heads from `head0` on to a query's row. */
  template <class Out> TW_DEVICE void store(Out *row, int head0, int rank, int thread) const {
#pragma unroll
    for (int i = 0; i < Chunk::pairs; i++) {
      const int head = head0 + row_of(i, thread);
      if (head >= config.heads) continue;
      const float inverse = 1.0f / sum[i];
      store2(row + head * config.head_dim + rank * Chunk::own_columns + column_of(i, thread),
          o[i].x * inverse + 0.0f, o[i].y * inverse + 0.0f);
    }
  }
};

/* Stores a whole answer of the heads from `head0` on to a query's row. */
template <PathConfig config, class Out>
TW_DEVICE void store_latent(const LatentAnswer<config> &total, Out *row, int head0, int warp, int lane) {
  constexpr int d = config.head_dim;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int head = head0 + lane / 4 + 8 * half;
    if (head >= config.heads) continue;
    const float inverse = 1.0f / total.sum[half];
    Out *const out = row + head * d + warp * (d / 4) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < d / 32; i++)
      store2(out + i * 8, total.o[i][2 * half] * inverse + 0.0f, total.o[i][2 * half + 1] * inverse + 0.0f);
  }
}

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
    const int tiles = (keys + TILE_KEYS - 1) / TILE_KEYS, chunks = streams_of(keys);
    LatentWalk<config.cluster> ahead(rank, tiles);
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
    if constexpr (config.cluster > 1) sums.clear(); else total.clear();
    int slot = 0;
    /* A chunk here is a stream. Of several blocks, the chunks of the last round are added in one more. */
    for (int round = 0; round * config.cluster < chunks + (config.cluster > 1 ? config.cluster : 0); round++) {
      const int chunk = round * config.cluster + rank;
      LatentAnswer<config> answer;
      answer.clear();
      for (int tile = chunk < chunks ? chunk * CHUNK_TILES : tiles; tile < tiles; tile = next_of_stream(tile)) {
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
      if constexpr (config.cluster == 1) {
        if (chunk * CHUNK <= last) total.add(answer);
      } else {
        if (round > 0) {
          const int count = min(chunks - (round - 1) * config.cluster, config.cluster);
          const Barrier there = round_barriers[(round - 1) % 2];
          if (thread == 0) there.expect(count * LatentChunk<config>::bytes);
          there.wait((round - 1) / 2 % 2);
          sums.add(memory + Layout::rounds_at + (round - 1) % 2 * Layout::round_bytes, count, thread);
        }
        __syncthreads();  /* Chunks of the round before have been added. */
        if (chunk < chunks) {
          const unsigned to = shared + Layout::rounds_at + round % 2 * Layout::round_bytes;
          LatentChunk<config>::send(answer, to + rank * LatentChunk<config>::bytes, round_barriers[round % 2].at, warp,
              lane);
        }
      }
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
