/*
 * Partial results of latent attention, and the order in which they are merged (attention/latent.cuh).
 *
 * Of every LATENT_STREAMS chunks of CHUNK keys, the same one of each makes one partial result, a stream. Streams of
 * even numbers are merged in order, so are those of odd numbers, and then the two results, whatever the schedule: the
 * bits depend on the query and its path alone. A merge with an empty result changes nothing but the sign of a zero,
 * which an answer does not have.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

constexpr int LATENT_STREAMS = 16, CHUNK_TILES = CHUNK / TILE_KEYS;

/* The tile behind one of its stream. */
TW_DEVICE int next_of_stream(int tile) {
  return tile + 1 + ((tile + 1) % CHUNK_TILES == 0 ? (LATENT_STREAMS - 1) * CHUNK_TILES : 0);
}
TW_DEVICE int streams_of(int keys) { return min((keys + CHUNK - 1) / CHUNK, LATENT_STREAMS); }

/*
 * The stream that a block of a cluster takes behind one of its own, of so many of a path; as many or more: none. One
 * alone takes even ones first.
 */
template <int cluster> TW_DEVICE int next_stream(int stream, int streams) {
  const int next = stream + (cluster == 1 ? 2 : cluster);
  return cluster == 1 && next >= streams && next % 2 == 0 ? 1 : next;
}

/* The tiles of a block's streams. From `tiles` on there is none. */
template <int cluster> struct LatentWalk {
  int stream, streams, tiles, tile;
  TW_DEVICE LatentWalk(int rank, int streams, int tiles)
      : stream(rank), streams(streams), tiles(tiles), tile(first()) {}
  TW_DEVICE int first() const { return stream < streams ? stream * CHUNK_TILES : tiles; }
  TW_DEVICE bool is_there() const { return tile < tiles; }
  TW_DEVICE void go_on() {
    tile = next_of_stream(tile);
    if (tile < tiles) return;
    stream = next_stream<cluster>(stream, streams);
    tile = first();
  }
};

/* `before` times a power, plus what follows times another: an element of two results merged. */
TW_DEVICE float merged(float before, float power_before, float x, float power) {
  return fmaf(x, power, mul(before, power_before));
}

/*
 * A result as a lane has it: columns of rows lane / 4 and 8 below, their maxima and sums. Weights of every 8 keys of a
 * tile have a sum of their own, and the four are added up when the stream ends: a warp may have eight keys.
 */
template <PathConfig config> struct LatentAnswer {
  float o[config.head_dim / 32][4], top[2], sum[2], sums[TILE_KEYS / 8][2];

  /* Shared memory where 128 threads keep a result: columns of each, then maxima and sums of each warp's rows. */
  static constexpr unsigned ends_at = 16 * config.head_dim * 4, kept_bytes = ends_at + 128 * 4;

  TW_DEVICE void clear() {
    top[0] = top[1] = -infinity();
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) sums[n][0] = sums[n][1] = 0.0f;
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
  }
  /* Ends the stream. */
  TW_DEVICE void end() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float parts[TILE_KEYS / 8];
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) parts[n] = quad_sum(sums[n][half]);
      sum[half] = tw::add(tw::add(tw::add(parts[0], parts[1]), parts[2]), parts[3]);
    }
  }
  /* Adds the result that follows. */
  TW_DEVICE void add(const LatentAnswer &x) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float most = fmaxf(top[half], x.top[half]);
      const float before = power2(top[half] - most), now = power2(x.top[half] - most);
      top[half] = most;
      sum[half] = merged(sum[half], before, x.sum[half], now);
#pragma unroll
      for (int i = 0; i < config.head_dim / 32; i++) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) o[i][e] = merged(o[i][e], before, x.o[i][e], now);
      }
    }
  }
  /* Keeps the result at `room`. `thread`: of 128. Lanes of the same two rows have a maximum or a sum each. */
  TW_DEVICE void keep(unsigned char *room, int thread) const {
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; i++)
      ((float4 *)room)[i * 128 + thread] = float4{ o[i][0], o[i][1], o[i][2], o[i][3] };
    const float ends[2] = { thread % 2 == 0 ? top[0] : top[1], thread % 2 == 0 ? sum[0] : sum[1] };
    ((float *)(room + ends_at))[thread] = thread % 4 < 2 ? ends[0] : ends[1];
    __syncwarp();  /* Maxima and sums are there. */
  }
  /* Becomes the result that is kept at `room` and itself behind it. */
  TW_DEVICE void add_to_kept(const unsigned char *room, int thread) {
    const float4 ends = ((const float4 *)(room + ends_at))[thread / 4];
    const float first_top[2] = { ends.x, ends.y }, first_sum[2] = { ends.z, ends.w };
    float before[2], now[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float most = fmaxf(first_top[half], top[half]);
      before[half] = power2(first_top[half] - most);
      now[half] = power2(top[half] - most);
      top[half] = most;
      sum[half] = merged(first_sum[half], before[half], sum[half], now[half]);
    }
#pragma unroll
    for (int i = 0; i < config.head_dim / 32; i++) {
      const float4 first = ((const float4 *)room)[i * 128 + thread];
      o[i][0] = merged(first.x, before[0], o[i][0], now[0]);
      o[i][1] = merged(first.y, before[0], o[i][1], now[0]);
      o[i][2] = merged(first.z, before[1], o[i][2], now[1]);
      o[i][3] = merged(first.w, before[1], o[i][3], now[1]);
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

/* A result as blocks of a cluster send it to each other: columns that one adds up, of 16 rows, then maxima and sums. */
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

/*
 * What blocks of a cluster add up, by pairs of columns of each of 128 threads. Results of more than two blocks are
 * streams: their sum is two, of even and of odd ones.
 */
template <PathConfig config> struct LatentSums {
  using Chunk = LatentChunk<config>;
  static constexpr int kinds = config.cluster > 2 ? 2 : 1;
  struct Sum {
    float top, sum, x, y;

    TW_DEVICE void add(float next_top, float next_sum, float next_x, float next_y) {
      const float most = fmaxf(top, next_top);
      const float before = power2(top - most), now = power2(next_top - most);
      top = most;
      sum = merged(sum, before, next_sum, now);
      x = merged(x, before, next_x, now);
      y = merged(y, before, next_y, now);
    }
  };
  Sum sums[kinds][Chunk::pairs];

  TW_DEVICE void clear() {
#pragma unroll
    for (int kind = 0; kind < kinds; kind++) {
#pragma unroll
      for (int i = 0; i < Chunk::pairs; i++) sums[kind][i] = Sum{ -infinity(), 0.0f, 0.0f, 0.0f };
    }
  }
  TW_DEVICE static int row_of(int i, int thread) { return (i * 128 + thread) / (Chunk::own_columns / 2); }
  TW_DEVICE static int column_of(int i, int thread) { return (i * 128 + thread) % (Chunk::own_columns / 2) * 2; }
  /* `count` results that lie one behind another, the first of them even. */
  TW_DEVICE void add(const unsigned char *chunks, int count, int thread) {
#pragma unroll
    for (int i = 0; i < Chunk::pairs; i++) {
#pragma unroll
      for (int w = 0; w < config.cluster; w++) {
        if (w >= count) break;
        const unsigned char *const chunk = chunks + w * Chunk::bytes;
        const float2 end = *(const float2 *)(chunk + Chunk::ends_at + row_of(i, thread) * 8);
        const float2 o = *(const float2 *)(chunk + (i * 128 + thread) * 8);
        sums[w % kinds][i].add(end.x, end.y, o.x, o.y);
      }
    }
  }
  /* Stores the block's columns of the heads from `head0` on to a query's row. */
  template <class Out> TW_DEVICE void store(Out *row, int head0, int rank, int thread) const {
#pragma unroll
    for (int i = 0; i < Chunk::pairs; i++) {
      const int head = head0 + row_of(i, thread);
      if (head >= config.heads) continue;
      Sum all = sums[0][i];
      if constexpr (kinds == 2) all.add(sums[1][i].top, sums[1][i].sum, sums[1][i].x, sums[1][i].y);
      const float inverse = 1.0f / all.sum;
      store2(row + head * config.head_dim + rank * Chunk::own_columns + column_of(i, thread),
          all.x * inverse + 0.0f, all.y * inverse + 0.0f);
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

}  // namespace tw
