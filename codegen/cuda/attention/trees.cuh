/*
 * Attention over trees, on tensor cores by the warp (mma.sync): a block computes `queries` queries of one head, 16 a
 * warp, against TILE_KEYS keys at a time.
 *
 * Tokens lie depth first, trees one after another: key k is visible to query q exactly when k <= q < end[k], and a tree
 * is a root r with the tokens [r, end[r]). The block passes over the trees of its queries one by one, and counts tiles
 * of keys from the root. So a query meets the same keys in the same tiles wherever its tree lies in the batch; keys
 * that it does not see add exact zeros, and a tile left out because nobody of the warp or block sees it would have
 * changed nothing: its answer has the same bits alone and in any company. Rows of other trees are computed along and
 * thrown away.
 *
 * With a window or chunks, a query sees of these the keys whose positions are not too far back: tiles after the first
 * that nobody of the block sees are not loaded. Slopes are those of attention/slopes.cuh.
 *
 * Shared memory: the queries, whose place the results take in short heads, then slots with a tile of keys and of values
 * each: one is at work, the others are on their way.
 *
 * Grid: heads, and one block for `queries` queries. PathConfig is that of attention/path.cuh; a query is a row here.
 */
#pragma once
#include "attention/slopes.cuh"
#include "attention/tileQueries.cuh"

namespace tw {

/* Buffers of a kernel. Rows of q, k and v are tokens, of `out` queries. */
template <class Element, class Out, class Sink = float> struct TreeOperands {
  const Element *q, *k, *v;
  /* Of a token: the end of its subtree, and its position. */
  const int *end, *position;
  const int *query_row;
  /* Of heads: slopes, and scores without a value. */
  const float *slopes;
  const Sink *sinks;
  Out *out;
  /* Rows of `out`, and of q, k and v. */
  int rows, query_rows;

  using ElementType = Element;
  using OutType = Out;
};

/* The queries of a block: which tokens they are. */
template <PathConfig config, bool is_list = config.has_query_row> struct TreeTokens {
  int first, rows;
  const int *list;
  /* −1 past the last. */
  TW_DEVICE int at(int i) const {
    if constexpr (is_list) return list[i];
    else return first + i < rows ? first + i : -1;
  }
  /* The same of a row that a lane multiplies: any token past the last, since nobody stores the result. */
  TW_DEVICE int of_row(int i) const {
    if constexpr (is_list) return list[i];
    else return first + i;
  }
  /* Least and greatest of all, by a whole warp. */
  TW_DEVICE void range(int &lowest, int &highest) const {
    if constexpr (is_list) {
      within(0, 0x7fffffff, lowest, highest);
    } else {
      lowest = first;
      highest = min(first + config.queries, rows) - 1;
    }
  }
  /* The same of those in [root, stop). −1 as the greatest: none. */
  TW_DEVICE void within(int root, int stop, int &low, int &high) const {
    low = 0x7fffffff;
    high = -1;
    for (int i = threadIdx.x & 31; i < config.queries; i += 32) {
      const int token = list[i];
      if (token >= root && token < stop) {
        if (token < low) low = token;
        if (token > high) high = token;
      }
    }
    low = __reduce_min_sync(ALL_LANES, low);
    high = __reduce_max_sync(ALL_LANES, high);
  }
};

/* Starts to copy head columns of rows [from, from + TILE_KEYS) of a buffer; rows from `stop` on arrive as zeros. */
template <PathConfig config, class Element>
TW_DEVICE void copy_tile(unsigned to, const Element *base, long long stride, int from, int stop) {
  constexpr int pieces = config.pieces(), count = TILE_KEYS * pieces, threads = config.threads();
#pragma unroll 2
  for (int j = 0; j < (count + threads - 1) / threads; j++) {
    const int i = j * threads + (int)threadIdx.x;
    if (count % threads != 0 && i >= count) break;
    const int row = from + i / pieces, piece = i % pieces;
    const bool is_there = row < stop;
    copy16(to + (i / pieces) * config.row_bytes() + piece * 16, base + (is_there ? row * stride + piece * 8 : 0),
        is_there ? 16 : 0);
  }
}

/*
 * The tree of the first query, token `lowest`: its root, the first key that the query sees, and the root's end. By all
 * threads; `roots` and `stops`: a number for each warp.
 */
template <PathConfig config>
TW_DEVICE void find_root(const int *end, int lowest, int (&roots)[config.warps], int (&stops)[config.warps], int &root,
    int &stop) {
  root = 0x7fffffff;
  stop = 0;
#pragma unroll 8
  for (int i = threadIdx.x * 4; i <= lowest; i += config.threads() * 4) {
    const uint4 e = *(const uint4 *)(end + i);
    int at = 0x7fffffff, end_at = 0;
    if ((int)e.w > lowest) { at = i + 3; end_at = (int)e.w; }
    if ((int)e.z > lowest) { at = i + 2; end_at = (int)e.z; }
    if ((int)e.y > lowest) { at = i + 1; end_at = (int)e.y; }
    if ((int)e.x > lowest) { at = i; end_at = (int)e.x; }
    if (at < root) { root = at; stop = end_at; }
  }
  const int lane = threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int first_root = __reduce_min_sync(ALL_LANES, root);
  if (root == first_root && (root != 0x7fffffff || lane == 0)) {
    roots[warp] = root;
    stops[warp] = stop;
  }
  __syncthreads();
  root = lowest;
  stop = root + 1;
  for (int w = 0; w < config.warps; w++) {
    if (roots[w] <= root) {
      root = roots[w];
      stop = stops[w];
    }
  }
}

/* A step of the softmax by exact maxima: weights of a tile from its scores. What rows have is rescaled. */
template <PathConfig config, class Element>
TW_DEVICE void weigh_exactly(Answer<config> &answer, Weights &weight, const Scores &s) {
  float most[2] = { answer.top[0], answer.top[1] };
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
    most[0] = fmaxf(most[0], fmaxf(s[n][0], s[n][1]));
    most[1] = fmaxf(most[1], fmaxf(s[n][2], s[n][3]));
  }
#pragma unroll
  for (int by = 1; by <= 2; by++) {
    most[0] = fmaxf(most[0], __shfl_xor_sync(ALL_LANES, most[0], by));
    most[1] = fmaxf(most[1], __shfl_xor_sync(ALL_LANES, most[1], by));
  }
  /* A row of another tree may have seen nothing yet. */
  const float base0 = most[0] == -infinity() ? 0.0f : most[0], base1 = most[1] == -infinity() ? 0.0f : most[1];
  const float keep[2] = { exp2_flushed((answer.top[0] - base0) * config.scale),
    exp2_flushed((answer.top[1] - base1) * config.scale) };
  const float shift[2] = { -base0 * config.scale, -base1 * config.scale };
  answer.top[0] = most[0];
  answer.top[1] = most[1];
  answer.sum[0] *= keep[0];
  answer.sum[1] *= keep[1];
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
    float w[4];
#pragma unroll
    for (int e = 0; e < 4; e++) w[e] = exp2_flushed(fmaf(s[n][e], config.scale, shift[e / 2]));
    answer.sum[0] += w[0] + w[1];
    answer.sum[1] += w[2] + w[3];
    weight[n / 2][n % 2 * 2] = pack<Element>(w[0], w[1]);
    weight[n / 2][n % 2 * 2 + 1] = pack<Element>(w[2], w[3]);
  }
#pragma unroll
  for (int i = 0; i < config.head_dim / 8; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) answer.o[i][e] *= keep[e / 2];
  }
}

template <PathConfig config, int most_tiles, class Operands> TW_DEVICE void tree_attention(const Operands &x) {
  using Element = typename Operands::ElementType;
  using Out = typename Operands::OutType;
  constexpr int d = config.head_dim, queries = config.queries, warps = config.warps, threads = config.threads();
  constexpr int slots = config.slots, pieces = config.pieces();
  constexpr bool has_places = config.is_bounded() || config.has_slopes();
  constexpr unsigned row_bytes = config.row_bytes(), slots_at = queries * row_bytes;
  constexpr unsigned slot_bytes = 2 * config.tile_bytes();
  static_assert(queries == 16 * warps && d % 16 == 0 && (slots == 2 || slots == 3), "a warp has 16 queries");
  static_assert(!config.is_coded() && sizeof(Element) == 2 && config.query_bytes() == row_bytes);
  static_assert(slots_at + slots * slot_bytes <= config.shared_bytes, "a block's memory is what its schedule says");
  TW_DYNAMIC_SHARED(memory, 128);
  __shared__ int tokens_of[config.has_query_row ? queries : 1];
  /* Positions and ends of the keys of tiles in slots; the greatest and least end of each tile of a tree. */
  __shared__ int places[has_places ? slots : 1][TILE_KEYS];
  __shared__ int ends[slots][TILE_KEYS], tops[most_tiles], leasts[most_tiles], roots[warps], stops[warps];
  const int lane = threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int head = blockIdx.x, first = blockIdx.y * queries;
  const Element *const q = x.q + head * d;
  const Element *const k = x.k + head / config.group() * d, *const v = x.v + head / config.group() * d;
  const unsigned shared = array_address(memory);
  const TreeTokens<config> tokens = { first, x.rows, tokens_of };
  if constexpr (config.has_query_row) {
    if (threadIdx.x < queries) {
      const int row = first + (int)threadIdx.x, token = row < x.rows ? x.query_row[row] : -1;
      tokens_of[threadIdx.x] = (unsigned)token < (unsigned)x.query_rows ? token : -1;
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < queries * pieces; i += threads) {
    const int token = tokens.at(i / pieces), piece = i % pieces;
    copy16(shared + (i / pieces) * row_bytes + piece * 16,
        q + (token < 0 ? 0 : token * (long long)config.q_stride + piece * 8), token < 0 ? 0 : 16);
  }
  copy_commit();
  int lowest, highest, root, stop;
  tokens.range(lowest, highest);
  if (config.has_query_row && highest < 0) return;
  find_root<config>(x.end, lowest, roots, stops, root, stop);

  const unsigned keys_at = keys_of_lane<config>(shared + slots_at);
  const unsigned values_at = values_of_lane<config>(shared + slots_at + config.tile_bytes());
  TileQueries<config> query;
  bool is_read = false;
  const int token[2] = { tokens.of_row(warp * 16 + (lane >> 2)), tokens.of_row(warp * 16 + (lane >> 2) + 8) };
  /* Positions of these. */
  int position[2] = {};
  if constexpr (has_places) {
#pragma unroll
    for (int half = 0; half < 2; half++)
      if ((unsigned)token[half] < (unsigned)x.query_rows) position[half] = x.position[token[half]];
  }
  float slope = 0.0f;
  if constexpr (config.has_slopes()) slope = slope_of<config>(x, head);

  for (; root <= highest; root = stop, stop = root <= highest ? x.end[root] : 0) {
    if (stop <= root) stop = root + 1;
    if (stop > x.query_rows) stop = x.query_rows;
    /* Least and greatest query of this tree: in the block, in the warp, whose greatest is less where it has none. */
    int low, high, warp_low, warp_high;
    if constexpr (config.has_query_row) {
      tokens.within(root, stop, low, high);
      if (high < 0) continue;
      const int mine = tokens.at(warp * 16 + (lane & 15));
      const bool is_mine = mine >= root && mine < stop;
      warp_low = __reduce_min_sync(ALL_LANES, is_mine ? mine : 0x7fffffff);
      warp_high = __reduce_max_sync(ALL_LANES, is_mine ? mine : -1);
    } else {
      low = root < first ? first : root;
      high = min(stop - 1, highest);
      const int own = first + warp * 16;
      warp_low = root < own ? own : root;
      const int last = min(high, own + 15);
      warp_high = last < warp_low ? -1 : last;
    }

    const int tiles = (high - root) / TILE_KEYS + 1;
    const auto start = [&](int tile, int slot) {
      const int key = root + tile * TILE_KEYS;
      const unsigned to = shared + slots_at + slot * slot_bytes;
      copy_tile<config>(to, k, config.k_stride, key, stop);
      copy_tile<config>(to + config.tile_bytes(), v, config.v_stride, key, stop);
    };
    /* Keys up to this position are too far back for every query of the block. */
    int far = 0;
    if constexpr (config.is_bounded()) {
      int near = 0x7fffffff;
      for (int i = lane; i < queries; i += 32) {
        const int of = tokens.at(i);
        if (of >= root && of < stop) near = min(near, x.position[of]);
      }
      far = too_far<config>(__reduce_min_sync(ALL_LANES, near));
    }
    const auto place_of = [&](int tile) {
      const int key = root + tile * TILE_KEYS + lane;
      return key < stop ? x.position[key] : 0;
    };
    /* Of a key that is too far back: 0. */
    const auto end_of = [&](int tile) {
      const int key = root + tile * TILE_KEYS + lane;
      if (config.is_bounded() && place_of(tile) <= far) return 0;
      return key < stop ? x.end[key] : 0;
    };
    /* Every query of the tree sees its root, if none is too far back. */
    start(0, 0);
    copy_commit();
    if (warp == 0) {
      ends[0][lane] = end_of(0);
      if constexpr (has_places) places[0][lane] = place_of(0);
    }
    for (int t = warp; t < tiles; t += warps) {
      const int e = end_of(t);
      const int top = __reduce_max_sync(ALL_LANES, e), least = __reduce_min_sync(ALL_LANES, e);
      if (lane == 0) {
        tops[t] = top;
        leasts[t] = least;
      }
    }
    Answer<config> answer;
    answer.clear();
    copy_wait<1>();
    __syncthreads();  /* The queries are there, and the ends of tiles. */
    if (!config.has_short_heads() || !is_read) {
      query.load(shared + (warp * 16 + (lane & 15)) * row_bytes + (lane >> 4) * 16);
      is_read = true;
    }
    /* The next tile that a query of the block sees. */
    const auto after = [&](int tile) {
      do tile++; while (tile < tiles && tops[tile] <= low);
      return tile;
    };
    int begun = 0;
    if (slots > 2) {
      begun = after(0);
      if (begun < tiles) {
        start(begun, 1);
        if (warp == 0) {
          ends[1][lane] = end_of(begun);
          if constexpr (has_places) places[1][lane] = place_of(begun);
        }
      }
      copy_commit();
    }

    for (int tile = 0, slot = 0;;) {
      const int key = root + tile * TILE_KEYS;
      copy_wait<slots - 2>();
      __syncthreads();  /* The tile is there, the one before has been read. */
      const int coming = after(begun), next = slots > 2 ? begun : coming, free = slot == 0 ? slots - 1 : slot - 1;
      begun = coming;
      if (coming < tiles) start(coming, free);
      copy_commit();
      const int coming_end = warp == 0 && coming < tiles ? end_of(coming) : 0;
      int coming_place = 0;
      if constexpr (has_places) coming_place = warp == 0 && coming < tiles ? place_of(coming) : 0;
      if (key <= warp_high && tops[tile] > warp_low) {
        Scores s;
        Weights weight;
        multiply_keys<config, Element>(s, query, keys_at + slot * slot_bytes);
        scale_scores<config>(s, {}, {});
        if constexpr (config.has_slopes()) {
#pragma unroll
          for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              const int place = places[slot][n * 8 + (lane & 3) * 2 + e % 2];
              s[n][e] = lean<config>(s[n][e], slope, (float)(place - position[e / 2]), (float)place);
            }
          }
        }
        if (key + TILE_KEYS - 1 > warp_low || leasts[tile] <= warp_high || config.is_bounded()) {
#pragma unroll
          for (int n = 0; n < TILE_KEYS / 8; n++) {
            const int column = n * 8 + (lane & 3) * 2;
            const int end[2] = { ends[slot][column], ends[slot][column + 1] };
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (key + column + e % 2 > token[e / 2] || token[e / 2] >= end[e % 2] ||
                  (config.is_bounded() && places[slot][column + e % 2] <= too_far<config>(position[e / 2])))
                s[n][e] = -infinity();
          }
        }
        weigh_exactly<config, Element>(answer, weight, s);
        add_values<config, Element>(answer, weight, values_at + slot * slot_bytes);
      }
      if (next >= tiles) break;
      if (warp == 0) {
        ends[free][lane] = coming_end;
        if constexpr (has_places) places[free][lane] = coming_place;
      }
      tile = next;
      slot = slot == slots - 1 ? 0 : slot + 1;
    }
    float sum[2] = { quad_sum(answer.sum[0]), quad_sum(answer.sum[1]) };
    if constexpr (config.has_sinks) {
      const float sink = mul(load(x.sinks + head), 1.44269504f);
      sum[0] += exp2_flushed(fmaf(-answer.top[0], config.scale, sink));
      sum[1] += exp2_flushed(fmaf(-answer.top[1], config.scale, sink));
    }
    const float inverse[2] = { 1.0f / sum[0], 1.0f / sum[1] };
    Out *const out = x.out + head * d;
    /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
    if constexpr (sizeof(Out) == 4) {
#pragma unroll
      for (int i = 0; i < d / 8; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int row = warp * 16 + (lane >> 2) + 8 * half;
          if (token[half] >= root && token[half] < stop)
            store2(out + (long long)(first + row) * config.out_stride + i * 8 + (lane & 3) * 2,
                answer.o[i][2 * half] * inverse[half] + 0.0f, answer.o[i][2 * half + 1] * inverse[half] + 0.0f);
        }
      }
    } else {
      /* The results of each warp take the place of its queries, or of the values when these have been read. */
      if constexpr (!config.has_short_heads()) __syncthreads();
      unsigned char *const stage = memory + warp * 16 * row_bytes + (config.has_short_heads() ? 0 : slots_at);
#pragma unroll
      for (int i = 0; i < d / 8; i++) {
        unsigned char *const at = stage + (lane >> 2) * row_bytes + i * 16 + (lane & 3) * 4;
        *(unsigned *)at = pack<Out>(answer.o[i][0] * inverse[0] + 0.0f, answer.o[i][1] * inverse[0] + 0.0f);
        *(unsigned *)(at + 8 * row_bytes) =
            pack<Out>(answer.o[i][2] * inverse[1] + 0.0f, answer.o[i][3] * inverse[1] + 0.0f);
      }
      __syncwarp();
      for (int i = lane; i < 16 * pieces; i += 32) {
        const int row = i / pieces, piece = i % pieces, of = tokens.at(warp * 16 + row);
        if (of < root || of >= stop) continue;
        *(uint4 *)(out + (long long)(first + warp * 16 + row) * config.out_stride + piece * 8) =
            *(const uint4 *)(stage + row * row_bytes + piece * 16);
      }
    }
    if (stop <= highest) __syncthreads();  /* Keys of the next tree may come. */
  }
}

}  // namespace tw
