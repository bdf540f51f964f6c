/*
 * Latent attention of a query (attention/latent.cuh) by two teams of four warps, to the same bits.
 *
 * One team weighs keys: each of its warps has 16 heads, and eight keys of a tile, over the whole depth, in four sums
 * that are added up in their order. The other multiplies weights with values: each of its warps has a quarter of their
 * columns, and copies keys to shared memory as far ahead as there are slots. The first team is a tile ahead of the
 * second, so that neither waits for the other's latencies.
 *
 * More than two blocks of a cluster send each other their streams of a round, whose room is that of one round: nobody
 * sends those of the next before everybody has added up these, which happens behind the first tile of the next stream.
 *
 * Shared memory: slots of keys; results that are kept or exchanged, and before them queries; of two tiles, weights,
 * maxima of warps, and what becomes of rows; barriers.
 *
 * Grid: `cluster` blocks for each 16 heads of a query.
 */
#pragma once
#include "attention/latent.cuh"

namespace tw {

template <PathConfig config> struct LatentTeams {
  static constexpr int depth = config.head_dim + config.tail, steps = depth / 64, slots = config.slots;
  static constexpr unsigned row_bytes = depth * 2 + 16, tile_bytes = TILE_KEYS * row_bytes;
  static constexpr unsigned query_bytes = 16 * row_bytes;
  static constexpr unsigned round_bytes =
      config.cluster > 1 ? config.cluster * LatentChunk<config>::bytes : LatentAnswer<config>::kept_bytes;
  static constexpr unsigned round_at = slots * tile_bytes;
  static constexpr unsigned weights_at = round_at + (round_bytes > query_bytes ? round_bytes : query_bytes);
  static constexpr unsigned tops_at = weights_at + 2 * 1024, rows_at = tops_at + 2 * 256;
  /* Of a tile: what rows so far are multiplied by, their maxima, and sums of each warp. */
  static constexpr unsigned tile_rows_bytes = (1 + 1 + 4) * 16 * 4;
  static constexpr unsigned barriers_at = rows_at + 2 * tile_rows_bytes;
  /* Barriers: keys of a slot are there; weights of a tile; their room is free; a round is there; and added up. */
  static constexpr int weights_there = slots, weights_free = slots + 2;
  static constexpr int round_there = slots + 4, round_added = slots + 5;
  static_assert(depth % 64 == 0 && config.head_dim % 64 == 0 && config.kv_heads == 1 && config.warps == 8);
  static_assert(config.cluster == 1 || config.head_dim % (16 * config.cluster) == 0);
  static_assert(slots >= 3 && barriers_at + (slots + 6) * 8 <= config.shared_bytes, "memory is what a schedule says");
};

/* A block's part of a query: every `cluster`-th stream. */
template <PathConfig config> struct LatentPart {
  Path path;
  int rank, tiles, streams;

  TW_DEVICE LatentPart(const Path &path, int rank)
      : path(path), rank(rank), tiles((path.keys + TILE_KEYS - 1) / TILE_KEYS), streams(streams_of(path.keys)) {}
  TW_DEVICE LatentWalk<config.cluster> walk() const { return { rank, streams, tiles }; }
  TW_DEVICE int next(int stream) const { return next_stream<config.cluster>(stream, streams); }
};

constexpr int WEIGHING_TEAM = 1, VALUES_TEAM = 2;

/* The team that weighs keys. */
template <PathConfig config, class Operands>
TW_DEVICE void weigh_latents(const Operands &x, unsigned char *memory, const LatentPart<config> &part, int head0) {
  using Layout = LatentTeams<config>;
  using Key = typename Operands::KeyType;
  constexpr int d = config.head_dim, steps = Layout::steps, slots = Layout::slots;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const unsigned shared = array_address(memory);
  const Barriers barriers{ shared + Layout::barriers_at };
  const Path &path = part.path;

  /* Queries come by way of shared memory, 16 bytes at a time. */
  for (int i = threadIdx.x; i < 16 * (Layout::depth / 8); i += 128) {
    const int row = i / (Layout::depth / 8), column = i % (Layout::depth / 8) * 8, head = head0 + row;
    const bool is_there = path.keys > 0 && head < config.heads;
    const long long token = is_there ? path.token : 0, of = is_there ? head : 0;
    copy16(shared + Layout::round_at + row * Layout::row_bytes + column * 2,
        column < d ? x.q + token * config.q_stride + of * d + column
                   : x.q_tail + token * config.q_tail_stride + of * config.tail + column - d,
        is_there ? 16 : 0);
  }
  copy_commit();
  copy_wait<0>();
  named_sync<128>(WEIGHING_TEAM);  /* Queries are there. */
  unsigned query[4 * steps][4];
#pragma unroll
  for (int i = 0; i < 4 * steps; i++)
    ldmatrix_x4(query[i], shared + Layout::round_at + (lane & 15) * Layout::row_bytes + (lane >> 4) * 16 + i * 32);
  if constexpr (config.cluster > 1) cluster_arrive();  /* Results may come where queries were. */

  /* Keys of this warp as an operand: one instruction has a step of two quarters of the depth. */
  const unsigned keys_at = shared + (warp * 8 + (lane & 7)) * Layout::row_bytes + ((lane >> 3) & 1) * 16 +
      (lane >> 4) * (2 * steps * 32);
  int n = 0, slot = 0, turn = 0;
  for (int stream = part.rank; stream < part.streams; stream = part.next(stream)) {
    float top[2] = { -infinity(), -infinity() }, sum[2] = { 0.0f, 0.0f };
    for (int tile = stream * CHUNK_TILES; tile < part.tiles; tile = next_of_stream(tile), n++) {
      barriers[slot].wait(turn);
      const unsigned keys = keys_at + slot * Layout::tile_bytes;
      if (++slot == slots) {
        slot = 0;
        turn ^= 1;
      }
      float parts[4][4];
#pragma unroll
      for (int q = 0; q < 4; q++) parts[q][0] = parts[q][1] = parts[q][2] = parts[q][3] = 0.0f;
#pragma unroll
      for (int i = 0; i < steps; i++) {
        unsigned even[4], odd[4];
        ldmatrix_x4(even, keys + i * 32);
        ldmatrix_x4(odd, keys + (steps + i) * 32);
        mma<Key>(parts[0], query[i], even[0], even[1]);
        mma<Key>(parts[1], query[steps + i], odd[0], odd[1]);
        mma<Key>(parts[2], query[2 * steps + i], even[2], even[3]);
        mma<Key>(parts[3], query[3 * steps + i], odd[2], odd[3]);
      }
      float s[4];
#pragma unroll
      for (int e = 0; e < 4; e++) s[e] = add(add(add(parts[0][e], parts[1][e]), parts[2][e]), parts[3][e]);
      const int key = tile * TILE_KEYS + warp * 8 + lane % 4 * 2;
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (key + e % 2 >= path.keys) s[e] = -infinity();

      float *const tops = (float *)(memory + Layout::tops_at) + n % 2 * 64;
      const float most[2] = { quad_max(fmaxf(s[0], s[1])), quad_max(fmaxf(s[2], s[3])) };
      if (lane % 4 == 0) {
        tops[lane / 4 * 4 + warp] = most[0];
        tops[(lane / 4 + 8) * 4 + warp] = most[1];
      }
      named_sync<128>(WEIGHING_TEAM);  /* Maxima of all warps are there; those of the tile before have been read. */
      float keep[2], w[4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float4 of = *(const float4 *)(tops + (lane / 4 + 8 * half) * 4);
        const float next = fmaxf(top[half], ceilf(mul(fmaxf(fmaxf(of.x, of.y), fmaxf(of.z, of.w)), config.scale)));
        keep[half] = power2(top[half] - next);
        top[half] = next;
        const float shift = next == -infinity() ? 0.0f : -next;
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) w[e] = exp2_flushed(fmaf(s[e], config.scale, shift));
        sum[half] = add(mul(sum[half], keep[half]), add(w[2 * half], w[2 * half + 1]));
      }
      barriers[Layout::weights_free + n % 2].wait((n / 2 + 1) % 2);
      ((uint2 *)(memory + Layout::weights_at + n % 2 * 1024))[(warp / 2 * 32 + lane) * 2 + warp % 2] =
          uint2{ pack<Key>(w[0], w[1]), pack<Key>(w[2], w[3]) };
      float *const rows = (float *)(memory + Layout::rows_at + n % 2 * Layout::tile_rows_bytes);
      if (warp == 0 && lane % 4 == 0) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          rows[lane / 4 + 8 * half] = keep[half];
          rows[16 + lane / 4 + 8 * half] = top[half];
        }
      }
      if (next_of_stream(tile) >= part.tiles) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float all = quad_sum(sum[half]);
          if (lane % 4 == 0) rows[32 + (lane / 4 + 8 * half) * 4 + warp] = all;
        }
      }
      __syncwarp();  /* All lanes have written, and read their keys. */
      if (lane == 0) barriers[Layout::weights_there + n % 2].arrive();
    }
  }
  if constexpr (config.cluster > 1) cluster_wait();
}

/* The team that multiplies weights with values, and copies keys. `thread`: of 128. */
template <PathConfig config, class Operands>
TW_DEVICE void mix_latents(const Operands &x, unsigned char *memory, const LatentPart<config> &part, int head0,
    int query) {
  using Layout = LatentTeams<config>;
  using Chunk = LatentChunk<config>;
  using Key = typename Operands::KeyType;
  constexpr int d = config.head_dim, slots = Layout::slots, passes = TILE_KEYS / 16;
  const int thread = threadIdx.x % 128, lane = thread & 31, warp = thread / 32;
  const unsigned shared = array_address(memory);
  const Barriers barriers{ shared + Layout::barriers_at };
  const Path &path = part.path;

  /* Eight threads copy a row. */
  int places[passes];
  LatentWalk<config.cluster> ahead = part.walk();
  const auto find = [&] {
#pragma unroll
    for (int p = 0; p < passes; p++) {
      const int i = ahead.tile * TILE_KEYS + p * 16 + thread / 8;
      places[p] = i < path.keys ? x.key[path.begin + i] : -1;
    }
  };
  const auto start = [&](int slot) {
#pragma unroll
    for (int p = 0; p < passes; p++) {
      const int place = max(places[p], 0), bytes = places[p] < 0 ? 0 : 16;
      const Key *const k = x.k + place * (long long)config.k_stride + thread % 8 * 8;
      const Key *const tail = x.k_tail + place * (long long)config.k_tail_stride + thread % 8 * 8;
      const unsigned row =
          shared + slot * Layout::tile_bytes + (p * 16 + thread / 8) * Layout::row_bytes + thread % 8 * 16;
#pragma unroll
      for (int j = 0; j < Layout::depth / 64; j++)
        copy16(row + j * 128, j < d / 64 ? k + j * 64 : tail + (j - d / 64) * 64, bytes);
    }
    barriers[slot].arrive_copied();
  };
  for (int n = 0; n < slots && ahead.is_there(); n++) {
    find();
    start(n);
    ahead.go_on();
  }
  find();
  if constexpr (config.cluster > 1) cluster_arrive();

  const unsigned values_at = shared + (lane & 15) * Layout::row_bytes + (lane >> 4) * 16 + warp * (d / 4) * 2;
  unsigned char *const room = memory + Layout::round_at;
  LatentAnswer<config> total;
  LatentSums<config> sums;
  if constexpr (config.cluster > 1) sums.clear();
  if constexpr (config.cluster <= 2) total.clear();
  /* Adds up what blocks have sent in a round, of which this block may have sent nothing. */
  const auto add_round = [&](int round) {
    const int count = min(part.streams - round * config.cluster, config.cluster);
    const Barrier there = barriers[Layout::round_there];
    if (thread == 0) there.expect(count * Chunk::bytes);
    there.wait(round % 2);
    sums.add(room, count, thread);
    if constexpr (config.cluster > 2) {
      named_sync<128>(VALUES_TEAM);  /* All streams have been read. */
      /* Who sends nothing more does not wait, and may be gone. */
      if (thread < config.cluster && (round + 1) * config.cluster + thread < part.streams)
        barriers[Layout::round_added].arrive_at(thread);
    }
  };
  const auto send = [&](const LatentAnswer<config> &x) {
    Chunk::send(x, shared + Layout::round_at + part.rank * Chunk::bytes, barriers[Layout::round_there].at, warp, lane);
  };
  int n = 0, slot = 0;
  for (int round = 0, stream = part.rank; stream < part.streams; round++, stream = part.next(stream)) {
    if constexpr (config.cluster == 1) {
      /* Who has weights has read the queries. */
      if (stream == 1) {
        total.keep(room, thread);
        total.clear();
      }
    }
    LatentAnswer<config> answer;
    answer.clear();
    const int first = stream * CHUNK_TILES;
    for (int tile = first; tile < part.tiles; tile = next_of_stream(tile), n++) {
      barriers[Layout::weights_there + n % 2].wait(n / 2 % 2);
      if (n > 0) {
        named_sync<128>(VALUES_TEAM);  /* The tile before has been read. */
        if (ahead.is_there()) {
          start(slot == 0 ? slots - 1 : slot - 1);
          ahead.go_on();
          find();
        }
      }
      Weights weight;
#pragma unroll
      for (int j = 0; j < TILE_KEYS / 16; j++) {
        const uint4 own = ((const uint4 *)(memory + Layout::weights_at + n % 2 * 1024))[j * 32 + lane];
        weight[j][0] = own.x;
        weight[j][1] = own.y;
        weight[j][2] = own.z;
        weight[j][3] = own.w;
      }
      const float *const rows = (const float *)(memory + Layout::rows_at + n % 2 * Layout::tile_rows_bytes);
      const float keep[2] = { rows[lane / 4], rows[lane / 4 + 8] };
      if (next_of_stream(tile) >= part.tiles) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float4 of = *(const float4 *)(rows + 32 + (lane / 4 + 8 * half) * 4);
          answer.sum[half] = add(add(add(of.x, of.y), of.z), of.w);
          answer.top[half] = rows[16 + lane / 4 + 8 * half];
        }
      }
      __syncwarp();  /* All lanes have read. */
      if (lane == 0) barriers[Layout::weights_free + n % 2].arrive();
      if (__any_sync(ALL_LANES, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < d / 32; i++) {
#pragma unroll
          for (int e = 0; e < 4; e++) answer.o[i][e] = mul(answer.o[i][e], keep[e / 2]);
        }
      }
      const unsigned values = values_at + slot * Layout::tile_bytes;
      slot = slot == slots - 1 ? 0 : slot + 1;
#pragma unroll
      for (int j = 0; j < TILE_KEYS / 16; j++) {
#pragma unroll
        for (int i = 0; i < d / 64; i++) {
          unsigned b[4];
          ldmatrix_x4_trans(b, values + j * 16 * Layout::row_bytes + i * 32);
          mma<Key>(answer.o[2 * i], weight[j], b[0], b[1]);
          mma<Key>(answer.o[2 * i + 1], weight[j], b[2], b[3]);
        }
      }
      if constexpr (config.cluster > 2)
        if (tile == first && round > 0) add_round(round - 1);
    }
    if constexpr (config.cluster <= 2) {
      total.add(answer);
    } else {
      if (round == 0) cluster_wait();  /* Barriers of all blocks are there, and their queries have been read. */
      else barriers[Layout::round_added].wait((round - 1) % 2);
      send(answer);
    }
  }
  auto *const row = x.out + query * (long long)config.out_stride;
  if constexpr (config.cluster == 1) {
    if (part.streams > 1) total.add_to_kept(room, thread);
    if (path.keys > 0) store_latent<config>(total, row, head0, warp, lane);
  } else {
    if constexpr (config.cluster == 2) {
      cluster_wait();  /* The other block's barriers are there, and its queries have been read. */
      if (part.rank < part.streams) send(total);
      if (part.streams > 0) add_round(0);
    } else {
      const int rounds = (part.streams + config.cluster - 1) / config.cluster;
      /* Rounds in which this block has streams: those behind it are added up when the next one has begun. */
      const int own = (part.streams - part.rank + config.cluster - 1) / config.cluster;
      if (own == 0) cluster_wait();
      for (int round = max(own - 1, 0); round < rounds; round++) add_round(round);
    }
    if (path.keys > 0) sums.store(row, head0, part.rank, thread);
  }
}

template <PathConfig config, class Operands> TW_DEVICE void latent_teams_attention(const Operands &x) {
  using Layout = LatentTeams<config>;
  constexpr int parts_of_query = (config.heads + 15) / 16;
  TW_DYNAMIC_SHARED(memory, 128);
  const int rank = (int)blockIdx.x % config.cluster, block = (int)blockIdx.x / config.cluster;
  const int query = block / parts_of_query, head0 = block % parts_of_query * 16;
  if (threadIdx.x == 0) {
    const Barriers barriers{ array_address(memory) + Layout::barriers_at };
    for (int i = 0; i < Layout::slots; i++) barriers[i].init(128);
    for (int i = 0; i < 4; i++) barriers[Layout::weights_there + i].init(4);
    barriers[Layout::round_there].init(1);
    barriers[Layout::round_added].init(config.cluster);
    show_barriers();
  }
  Path path{ -1, -1, 0, 0 };
  if (query < x.rows) path = path_of<config>(x, query);
  path.keys = max(path.keys, 0);
  const LatentPart<config> part(path, rank);
  if constexpr (config.reads_ahead) {
    /* Rows that this call has yet to write are brought to L2 as well. Nothing is read from there before the wait. */
    constexpr int lines = Layout::depth / 64;
    LatentWalk<config.cluster> ahead = part.walk();
    for (int n = 0; n < Layout::slots; n++, ahead.go_on()) {
      const int i = ahead.tile * TILE_KEYS + (int)threadIdx.x / 8;
      if (i >= path.keys) break;
      const long long place = max(x.key[path.begin + i], 0);
      for (int line = threadIdx.x % 8; line < lines; line += 8) {
        constexpr int own = config.head_dim / 64;
        if (line < own) prefetch(x.k + place * config.k_stride + line * 64);
        else prefetch(x.k_tail + place * config.k_tail_stride + (line - own) * 64);
      }
    }
    await_previous();
  }
  __syncthreads();  /* The barriers are there. */
  if (threadIdx.x < 128) weigh_latents<config>(x, memory, part, head0);
  else mix_latents<config>(x, memory, part, head0, query);
}

}  // namespace tw
