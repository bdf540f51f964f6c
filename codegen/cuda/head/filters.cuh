/*
 * Which tokens of a row may be chosen: the first k by score, or those that have a share of the probability. A block of
 * threads looks at all logits several times and keeps none. Scores fall into bins by their distance from the largest;
 * the bin in which the limit lies is looked at by exact scores, and equal scores by their tokens. All sums are of whole
 * numbers: they have no order.
 */
#pragma once
#include "head/draw.cuh"
#include "lib/elements.cuh"

namespace tw {

struct SampleConfig {
  int vocab;
  /* Words from row to row of masks, elements of logits and of the most likely tokens. */
  int mask_stride, logits_stride, tokens_stride, log_probs_stride;
  /* Likely tokens of a row that are found at most. */
  int max_best;
  /* Of the launch. */
  int threads, shared_bytes;

  TW_CONSTEXPR int warps() const { return threads / 32; }
};

constexpr int BINS = 1024, LAST_TOKEN = 0x7fffffff;
using WholeSum = unsigned long long;

/*
 * The tokens of a row that are left, in order of scores s = z·heat, of equals the lower first: all with s > least, and
 * of those with s = least the ones up to `last`.
 */
struct TokensLeft {
  float least;
  int last;
};
TW_DEVICE bool is_left(TokensLeft left, float s, int token) {
  return s > left.least || (s == left.least && token <= left.last);
}

/* A row of logits, the factor that makes scores of them, and the largest score. */
struct RowScores {
  const float *z;
  float heat, top;

  TW_DEVICE float of(int token) const { return mul(z[token], heat); }
  /* Bin of a score, 32 a unit from the largest; NaN in the last. A smaller score has no earlier bin. */
  TW_DEVICE int bin(float s) const {
    const float d = mul(sub(top, s), 32.0f);
    return d < 1023.0f ? (int)d : BINS - 1;
  }
  /* A score's share of the largest one's probability, in units of 2^-38. */
  TW_DEVICE WholeSum weight(float s) const {
    const float w = mul(expf(sub(s, top)), 274877906944.0f);
    return s == top ? 1ull << 38 : w > 0.0f ? (WholeSum)w : 0;
  }
};

/* Numbers in the order of floats. Zero has one sign. */
TW_DEVICE unsigned order_of(float s) {
  const unsigned u = __float_as_uint(add(s, 0.0f));
  return u >> 31 ? ~u : u | 0x80000000u;
}
TW_DEVICE float score_of_order(unsigned k) { return __uint_as_float(k >> 31 ? k & 0x7fffffffu : ~k); }

/* What the threads of a block share. Bins are sums in three parts of 13 bits, which 2^19 tokens do not exceed. */
template <SampleConfig config> struct Room {
  unsigned parts[3][BINS];
  WholeSum scan[config.threads], before, size;
  float s[BINS];
  int token[BINS];
  Drawn drawn[config.warps()];
  unsigned low, high;
  int count, bin, is_listed;
  float chosen;

  static constexpr int bins_of_thread = (BINS + config.threads - 1) / config.threads;

  TW_DEVICE void clear() {
    for (int i = threadIdx.x; i < BINS; i += config.threads) parts[0][i] = parts[1][i] = parts[2][i] = 0;
    __syncthreads();
  }
  TW_DEVICE void put(int at, WholeSum q) {
    const unsigned lower = (unsigned)q & 8191u, middle = (unsigned)(q >> 13) & 8191u, upper = (unsigned)(q >> 26);
    if (lower) atomicAdd(&parts[0][at], lower);
    if (middle) atomicAdd(&parts[1][at], middle);
    if (upper) atomicAdd(&parts[2][at], upper);
  }
  TW_DEVICE WholeSum in_bin(int at) const {
    return parts[0][at] + ((WholeSum)parts[1][at] << 13) + ((WholeSum)parts[2][at] << 26);
  }
  /* Adds the bins up: in `scan` each thread has the sum of its own bins and of all before. Returns that of all. */
  TW_DEVICE WholeSum add_up() {
    const int self = threadIdx.x;
    WholeSum sum = 0;
    __syncthreads();
    for (int i = self * bins_of_thread; i < (self + 1) * bins_of_thread && i < BINS; i++) sum += in_bin(i);
    scan[self] = sum;
    __syncthreads();
    for (int w = 1; w < config.threads; w *= 2) {
      const WholeSum other = self >= w ? scan[self - w] : 0;
      __syncthreads();
      scan[self] += other;
      __syncthreads();
    }
    return scan[config.threads - 1];
  }
  /* The bin whose sum, with those before it, reaches `wanted`; with what is before it, and what is in it. */
  TW_DEVICE void find_bin(WholeSum wanted) {
    const int self = threadIdx.x;
    WholeSum sum = self == 0 ? 0 : scan[self - 1];
    if (sum < wanted && wanted <= scan[self]) {
      int at = self * bins_of_thread;
      while (sum + in_bin(at) < wanted) sum += in_bin(at++);
      bin = at;
      before = sum;
      size = in_bin(at);
    }
    __syncthreads();
  }
  /* The best of all threads, in each of them. */
  TW_DEVICE Drawn best(Drawn own) {
    own.take_best_of(32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) drawn[threadIdx.x / 32] = own;
    __syncthreads();
    for (int w = 0; w < config.warps(); w++) own.take_better(drawn[w].score, drawn[w].at, drawn[w].z);
    return own;
  }
};

/*
 * Leaves the fewest tokens whose number reaches k, or, without one, whose weight reaches the share p of what was left:
 * at least 1. Leaves all where there are no more.
 */
template <SampleConfig config>
TW_DEVICE TokensLeft keep_first(Room<config> &room, const RowScores &row, TokensLeft left, int k, float p) {
  const int self = threadIdx.x;
  room.clear();
  for (int j = self; j < config.vocab; j += config.threads) {
    const float s = row.of(j);
    if (is_left(left, s, j)) room.put(row.bin(s), k > 0 ? 1 : row.weight(s));
  }
  const WholeSum all = room.add_up();
  const double share = ceil((double)p * (double)all);
  const WholeSum wanted = k > 0 ? (WholeSum)k : share > 1.0 ? (WholeSum)share : 1;
  if (all < wanted) return left;
  if (self == 0) {
    room.low = 0xffffffffu;
    room.high = 0;
    room.count = 0;
  }
  room.find_bin(wanted);
  const int bin = room.bin;
  WholeSum before = room.before;
  for (int j = self; j < config.vocab; j += config.threads) {
    const float s = row.of(j);
    if (row.bin(s) != bin || !is_left(left, s, j)) continue;
    atomicMin(&room.low, order_of(s));
    atomicMax(&room.high, order_of(s));
    const int at = atomicAdd(&room.count, 1);
    if (at < BINS) {
      room.s[at] = s;
      room.token[at] = j;
    }
  }
  __syncthreads();
  /* Within the bin by exact scores, 10 bits of their order at a time: of a list, or of all tokens again. */
  const bool is_listed = room.count <= BINS;
  const int n = is_listed ? room.count : config.vocab;
  unsigned low = room.low, high = room.high;
  for (int shift = 32; shift > 0;) {
    for (shift = 0; (high - low) >> shift > BINS - 1u;) shift++;
    room.clear();
    for (int i = self; i < n; i += config.threads) {
      const int token = is_listed ? room.token[i] : i;
      const float s = is_listed ? room.s[i] : row.of(i);
      const unsigned order = order_of(s);
      if (order < low || order > high || row.bin(s) != bin || !is_left(left, s, token)) continue;
      room.put(BINS - 1 - (int)((order - low) >> shift), k > 0 ? 1 : row.weight(s));
    }
    room.add_up();
    room.find_bin(wanted - before);
    before += room.before;
    low += (unsigned)(BINS - 1 - room.bin) << shift;
    if ((high - low) >> shift) high = low + ((1u << shift) - 1u);
  }
  const float least = score_of_order(low);
  const WholeSum each = k > 0 ? 1 : row.weight(least);
  const WholeSum there = each == 0 ? 1 : room.size / each;
  WholeSum ties = each == 0 ? 1 : (wanted - before + each - 1) / each;
  /* All equal scores that were left: a filter before this one may have left only the first of them. */
  if (ties >= there) return { least, least == left.least ? left.last : LAST_TOKEN };
  /* The first of equal scores: by the upper, then the lower bits of their tokens. */
  int from = 0;
  for (int shift = 9; shift >= 0; shift -= 9) {
    room.clear();
    for (int i = self; i < n; i += config.threads) {
      const int token = is_listed ? room.token[i] : i, at = (token - from) >> shift;
      const float s = is_listed ? room.s[i] : row.of(i);
      if (s == least && token >= from && at < BINS && is_left(left, s, token)) room.put(at, 1);
    }
    room.add_up();
    room.find_bin(ties);
    ties -= room.before;
    from += room.bin << shift;
    __syncthreads();
  }
  return { least, from };
}

}  // namespace tw
