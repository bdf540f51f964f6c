/*
 * Attention of decoding by teams: a cluster of `cluster` blocks computes one query of the heads that share one head of
 * keys, or some queries, of which those of one path are a run (decodeRun.cuh). Of scores, the heads of a run's queries
 * are the rows of tiles of a tensor core; of results they are columns, eight in each half of a tile, so that few heads
 * leave less of it idle.
 *
 * A team of four warps takes CHUNK keys at a time. Each warp copies and multiplies TILE_KEYS of them, and computes
 * their weights; then it computes some columns of the result from the weights of all. All teams of the run's blocks
 * take chunks side by side and send their results to the blocks that add them up: every thread has some elements of the
 * answer, as many whatever the run, and adds chunks in ascending order. A team that is alone adds chunks up in
 * registers.
 *
 * A warp waits for its own keys alone; then for the maxima, and for the weights and values, of its team. It starts the
 * copies of its next keys as soon as it has multiplied these, and those of its next values when the team has read
 * these. The chunks of a round are added in the next one, while values are under way, when their bytes are there. Two
 * buffers are enough: who sends chunks of a round has added those of the round before, so everybody has sent these, and
 * had added the ones before them.
 *
 * A value that a row does not see has weight zero. Where such a value is not finite, the run parts before it begins.
 *
 * Grid: kv_heads clusters for `queries` queries.
 */
#pragma once
#include "attention/chunks.cuh"
#include "attention/decodeTeam.cuh"

namespace tw {

/* The answer so far. */
template <PathConfig config, bool is_alone = DecodeLayout<config>::workers == 1> struct DecodeAnswer;

/* Of a team that is alone: it has every chunk, and each thread the same columns of all. */
template <PathConfig config> struct DecodeAnswer<config, true> {
  using Layout = DecodeLayout<config>;
  float o[Layout::units][Layout::halves][4] = {}, top[Layout::halves][2];
  float2 end[Layout::halves];

  TW_DEVICE DecodeAnswer() {
#pragma unroll
    for (int half = 0; half < Layout::halves; half++) {
      top[half][0] = top[half][1] = -infinity();
      end[half] = { -infinity(), 0.0f };
    }
  }
  TW_DEVICE void add(const ChunkAnswer<config> &chunk, bool has_end) {
#pragma unroll
    for (int half = 0; half < Layout::halves; half++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float most = fmaxf(top[half][e], chunk.top[half][e][Layout::warps - 1]);
        const float before = power2(top[half][e] - most);
        const float now = power2(chunk.top[half][e][Layout::warps - 1] - most);
        top[half][e] = most;
#pragma unroll
        for (int u = 0; u < Layout::units; u++) {
          o[u][half][e] = fmaf(chunk.o[u][half][e], now, mul(o[u][half][e], before));
          o[u][half][2 + e] = fmaf(chunk.o[u][half][2 + e], now, mul(o[u][half][2 + e], before));
        }
      }
      if (has_end) {
        const float most = fmaxf(end[half].x, chunk.end[half].x);
        const float before = power2(end[half].x - most), now = power2(chunk.end[half].x - most);
        end[half] = { most, fmaf(chunk.end[half].y, now, mul(end[half].y, before)) };
      }
    }
  }
};

/* Of several workers, by pairs of columns of a thread: maximum, sum, and the two. */
template <PathConfig config> struct DecodeAnswer<config, false> {
  using Layout = DecodeLayout<config>;
  /* Workers whose parts are read at once. */
  static constexpr int together = Layout::workers < 16 ? Layout::workers : 16;
  float top[Layout::pairs_of_thread], sum[Layout::pairs_of_thread];
  float2 o[Layout::pairs_of_thread];

  TW_DEVICE DecodeAnswer() {
#pragma unroll
    for (int i = 0; i < Layout::pairs_of_thread; i++) {
      top[i] = -infinity();
      sum[i] = o[i].x = o[i].y = 0.0f;
    }
  }
  /*
   * Adds the chunks of a round: `count` workers have one. Workers take chunks in order: the first team of each block,
   * then the second. `pair_of`: the i-th pair of this thread, −1 if it has none.
   */
  template <class PairOf>
  TW_DEVICE void add(const unsigned char *memory, int round, int count, const PairOf &pair_of) {
    const unsigned char *const chunks = memory + Layout::rounds_at + round % 2 * Layout::round_bytes;
#pragma unroll
    for (int i = 0; i < Layout::pairs_of_thread; i++) {
      const int pair = pair_of(i);
      if (pair < 0) break;
      const int row = pair / (config.head_dim / 2), own = i * Layout::threads + (int)threadIdx.x;
#pragma unroll
      for (int first = 0; first < Layout::workers; first += together) {
        float2 ends[together], x[together];
#pragma unroll
        for (int w = 0; w < together; w++) {
          if (first + w >= count) break;
          const unsigned char *const chunk = chunks + (first + w) * Layout::chunk_bytes;
          ends[w] = *(const float2 *)(chunk + Layout::ends_in_chunk + row * 8);
          x[w] = *(const float2 *)(chunk + own * 8);
        }
#pragma unroll
        for (int w = 0; w < together; w++) {
          if (first + w >= count) break;
          const float most = fmaxf(top[i], ends[w].x);
          const float before = power2(top[i] - most), now = power2(ends[w].x - most);
          top[i] = most;
          sum[i] = fmaf(ends[w].y, now, mul(sum[i], before));
          o[i].x = fmaf(x[w].x, now, mul(o[i].x, before));
          o[i].y = fmaf(x[w].y, now, mul(o[i].y, before));
        }
      }
    }
  }
};

/*
 * Computes the run's answer with head kv of keys. False, and nothing is stored or sent, if the run must part. The
 * cluster's barriers have been made.
 */
template <PathConfig config, class Operands>
TW_DEVICE bool decode_run(const Operands &x, unsigned char *memory, const DecodeRun<config> &run, int kv) {
  using Key = typename Operands::KeyType;
  using Layout = DecodeLayout<config>;
  constexpr int group = Layout::group, d = config.head_dim, halves = Layout::halves, tiles = Layout::tiles;
  constexpr bool is_alone = Layout::workers == 1;
  const DecodeTeam<config, Operands> team(memory, run.rows());
  const Key *const k = x.k + kv * d, *const v = x.v + kv * d;
  const int workers = run.blocks() * config.teams, worker = team.team * run.blocks() + run.rank;
  /* Chunks are counted from the first key's. */
  const int first_chunk = config.is_bounded() ? run.low / CHUNK : 0;
  const int chunks = (run.keys + CHUNK - 1) / CHUNK - first_chunk;
  /* The team's chunk of each round. */
  const auto chunk_of = [&](int round) { return round * workers + worker; };
  /* Where the key of this lane lies: key `lane` of the warp's part of a chunk, −1 past the last key. */
  const auto place_of = [&](int chunk) {
    const int i = (first_chunk + chunk) * CHUNK + team.warp * TILE_KEYS + team.lane;
    return (!config.is_bounded() || i >= run.low) && i < run.keys ? x.key[run.begin + i] : -1;
  };
  int place = place_of(chunk_of(0));
  if constexpr (config.reads_ahead) {
    /* Rows that this call has yet to write are brought to L2 as well. Nothing is read from there before the wait. */
    if (place >= 0) {
      for (int i = 0; i < d; i += 128 / config.key_bytes) {
        prefetch(k + place * (long long)config.k_stride + i);
        prefetch(v + place * (long long)config.v_stride + i);
      }
    }
    await_previous();
  }
  if (run.keys <= 0) {
    if constexpr (config.cluster > 1) cluster_wait();
    return true;
  }

  /* The warp copies its own part of a chunk. */
  constexpr bool keeps_piece = has_whole_rows<config>;
  const unsigned char *k_rows = (const unsigned char *)k, *v_rows = (const unsigned char *)v;
  if constexpr (keeps_piece) {
    /* This lane's piece of row 0. Compilers that know its parts add them up for every row. */
    k_rows = opaque(k_rows + team.lane % config.pieces() * 16);
    v_rows = opaque(v_rows + team.lane % config.pieces() * 16);
  }
  const unsigned own_keys = array_address(memory) + team.team * Layout::team_bytes + team.warp * config.tile_bytes();
  const unsigned own_values = own_keys + Layout::values_at;
  const auto start_keys = [&](int from) { copy_rows<config, keeps_piece>(own_keys, k_rows, config.k_units(), from); };
  const auto start_values = [&](int from) {
    copy_rows<config, keeps_piece>(own_values, v_rows, config.v_units(), from);
  };
  if (chunk_of(0) < chunks) start_keys(place);
  copy_commit();
  if (chunk_of(0) < chunks) start_values(place);
  copy_commit();
  int next_place = place_of(chunk_of(1));
  float2 scales = {}, next_scales = {};
  if constexpr (config.is_coded()) next_scales = scales = scales_of<config>(x, kv, chunk_of(0) < chunks ? place : -1);

  KeptQueries<config> query;
  float factor[tiles][2] = {};
  /* Rows 8·half + row0 see keys [low, keys). */
  int low[halves], keys[halves], row_of[halves];
#pragma unroll
  for (int half = 0; half < halves; half++) {
    row_of[half] = 8 * half + team.row0;
    low[half] = run.low_of_row(row_of[half]);
    keys[half] = run.keys_of_row(row_of[half]);
  }
  Slopes<config, halves> slopes;
  slopes.find(x, kv, row_of);
#pragma unroll
  for (int m = 0; m < tiles; m++) {
    const int row = 16 * m + team.row0, other = row + 8;
    const int token = run.token_of_row(row), other_token = config.queries > 1 ? run.token_of_row(other) : token;
    const auto *const q = x.q + kv * group * d + team.quad * config.lane_columns();
    load_queries(query, factor[m],
        { q + token * (long long)config.q_stride + row % group * d,
          q + other_token * (long long)config.q_stride + other % group * d },
        { row < run.rows(), team.halves_of(m) > 1 && other < run.rows() });
    if (tiles > 1 && (int)threadIdx.x / 32 == m) LeftQueries<config>(memory, m).leave(query);
  }
  if constexpr (tiles > 1) __syncthreads();  /* The queries are there. */
  if constexpr (config.queries > 1) {
    if (run.count > 1 && !is_run_finite<config>(x, run, kv)) {
      copy_wait<0>();
      __syncthreads();  /* Nothing is under way. */
      return false;
    }
  }
  /* The i-th pair of columns that this thread stores; −1 if it has none. */
  const auto pair_of = [&](int i) {
    const int own = i * Layout::threads + (int)threadIdx.x, pair = run.rank * Layout::pairs_of_block + own;
    return own < Layout::pairs_of_block && pair < run.count * Layout::pairs ? pair : -1;
  };
  /* Pairs that the block has. */
  const int pairs_here =
      max(min(run.count * Layout::pairs - run.rank * Layout::pairs_of_block, Layout::pairs_of_block), 0);
  const Barriers round_barriers{ array_address(memory) + Layout::barriers_at };
  DecodeAnswer<config> answer;

  /* Of several workers, the parts of the last round are added in one more. */
  for (int round = 0; round * workers < chunks + (is_alone ? 0 : workers); round++) {
    const int chunk = chunk_of(round), key = (first_chunk + chunk) * CHUNK + team.warp * TILE_KEYS;
    const bool works = chunk < chunks, goes_on = chunk_of(round + 1) < chunks;
    /* Parts of the chunk that have keys. */
    const int parts = min((run.keys - (first_chunk + chunk) * CHUNK + TILE_KEYS - 1) / TILE_KEYS, Layout::warps);
    ChunkAnswer<config> now;
    float top[halves][Layout::warps];
    if (works) {
      copy_wait<1>();
      __syncwarp();  /* The warp's keys are there. */
      Scores s[tiles];
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        if (!team.has(2 * m)) break;
        if constexpr (tiles > 1) multiply_keys<config, Key>(s[m], LeftQueries<config>(memory, m), team.keys_at);
        else multiply_keys<config, Key>(s[m], query, team.keys_at);
      }
      __syncwarp();  /* The warp's keys have been read. */
      if (goes_on) start_keys(next_place);
      copy_commit();
      if constexpr (config.is_coded()) {
        if (goes_on) next_scales = scales_of<config>(x, kv, next_place);
        team.leave_scales(scales);
      }
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        if (!team.has(2 * m)) break;
        team.scale(s[m], m, factor[m]);
        if constexpr (config.has_slopes()) team.lean_rows(s[m], m, slopes.of, key, keys);
        if (key + TILE_KEYS > run.all_keys || (config.is_bounded() && key < run.all_low))
          team.mask_ends(s[m], m, key, low, keys);
        team.leave_maxima(s[m], m);
      }
      team.meet();  /* The maxima of all warps are there. */
#pragma unroll
      for (int half = 0; half < halves; half++) {
        if (!team.has(half)) break;
        running_maxima(top[half], team.tops + (team.row0 + 8 * half) * Layout::warps);
        if constexpr (tiles == 1) {
#pragma unroll
          for (int e = 0; e < 2; e++) team.find_tops(now, half, e);
        }
      }
      if (team.warp < parts) {
        float own[halves];
#pragma unroll
        for (int half = 0; half < halves; half++) own[half] = team.has(half) ? team.own_maximum(top[half]) : 0.0f;
#pragma unroll
        for (int m = 0; m < tiles; m++)
          if (team.has(2 * m)) team.leave_weights(s[m], m, own);
      }
    }
    if constexpr (!is_alone) {
      if (round > 0) {
        const int count = min(chunks - (round - 1) * workers, workers);
        if constexpr (config.cluster > 1) {
          const Barrier chunks_there = round_barriers[(round - 1) % 2];
          if (threadIdx.x == 0) chunks_there.expect(count * (pairs_here * 8 + run.rows() * 8));
          chunks_there.wait((round - 1) / 2 % 2);
        } else {
          __syncthreads();  /* The chunks of the round before are there. */
        }
        answer.add(memory, round - 1, count, pair_of);
      }
    }
    if (works) {
      copy_wait<1>();
      team.meet();  /* The weights and the values of all warps are there. */
      team.multiply_values(now, parts);
      if (goes_on) {
        team.meet();  /* The values have been read. */
        start_values(next_place);
      }
      copy_commit();
      next_place = place_of(chunk_of(round + 2));
      scales = next_scales;
      if (team.warp == Layout::warps - 1) {
#pragma unroll
        for (int half = 0; half < halves; half++)
          if (team.has(half)) now.end[half] = team.end_of(top[half], half, parts);
      }
    }
    if constexpr (is_alone) {
      answer.add(now, team.warp == Layout::warps - 1);
    } else {
      if constexpr (config.cluster > 1) {
        if (round == 0) cluster_wait();  /* The barriers of all blocks are there. */
      }
      if (works) team.send_chunk(memory, round, worker, run.first_rank, run.blocks(), now.o, now.end);
    }
  }
  if constexpr (is_alone) {
    team.leave_answer(answer.o, answer.end);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Layout::pairs_of_thread; i++) {
    const int pair = pair_of(i);
    if (pair < 0) break;
    float2 columns;
    /* Of the row: the maximum, and the sum of weights. */
    float top, sum;
    if constexpr (is_alone) {
      const int row = pair / (d / 2), column = pair % (d / 2) * 2;
      columns = *(const float2 *)(team.part + row * Layout::part_pitch + column);
      const float2 end = ((const float2 *)(team.part + Layout::ends_in_part / 4))[row];
      top = end.x;
      sum = end.y;
    } else {
      columns = answer.o[i];
      top = answer.top[i];
      sum = answer.sum[i];
    }
    if constexpr (config.has_sinks) sum += sink_weight<config>(x, kv * group + pair / (d / 2) % group, top);
    const float inverse = 1.0f / sum;
    auto *const out = x.out + (run.first + pair / Layout::pairs) * (long long)config.out_stride + kv * group * d;
    /* Adding zero makes −0 of a part left out and +0 of one that added nothing the same. */
    store2(out + pair % Layout::pairs * 2, columns.x * inverse + 0.0f, columns.y * inverse + 0.0f);
  }
  return true;
}

/* One query of a cluster by a block of its own. */
template <PathConfig config> TW_CONSTEXPR PathConfig alone() {
  PathConfig one = config;
  one.queries = one.cluster = 1;
  return one;
}

template <PathConfig config, class Operands> TW_DEVICE void decode_attention(const Operands &x) {
  TW_DYNAMIC_SHARED(memory, 128);
  const int rank = (int)blockIdx.x % config.cluster, kv = (int)blockIdx.x / config.cluster % config.kv_heads,
            first = (int)blockIdx.x / (config.cluster * config.kv_heads) * config.queries;
  DecodeRun<config> run(x, first, rank);
  if constexpr (config.cluster > 1) {
    const Barriers round_barriers{ array_address(memory) + DecodeLayout<config>::barriers_at };
    if (threadIdx.x == 0) {
      round_barriers[0].init(1);
      round_barriers[1].init(1);
      show_barriers();
    }
    cluster_arrive_relaxed();
  }
  if constexpr (config.queries == 1) {
    decode_run<config>(x, memory, run, kv);
  } else {
    /* Few queries have a block each and nobody to share it with. */
    constexpr bool may_be_alone = config.cluster == config.queries && config.teams == 1;
    for (;;) {
      if (may_be_alone && run.count == 1) {
        if (run.first < x.rows) decode_run<alone<config>()>(x, memory, { x, run.first, 0 }, kv);
        cluster_wait();
        return;
      }
      if (decode_run<config>(x, memory, run, kv)) return;
      run.part();
    }
  }
}

}  // namespace tw
