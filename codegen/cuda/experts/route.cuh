/*
 * The choice of experts: of each row's logits the `chosen` largest, of equal ones the lower expert first, and their
 * weights: softmax over the chosen (normalized) or over all experts, or in turn each over those near it that are not
 * chosen before. A warp a row; lane l has experts l, l + 32, ….
 * Where scores are compared, they are a softmax or sigmoids; the largest scores plus bias are chosen, in the groups
 * that are kept, and weights are scores.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

struct RouteConfig {
  int count, chosen;
  bool normalized;
  int logits_stride, experts_stride;
  /* Of the launch. */
  int threads;
  /* Of weights; 0: 1. */
  double factor;
  /* How far logits may be for weights in turn; 0: weights are those of all. */
  double in_turn;
  bool compared, sigmoid;
  /* Of experts that follow each other; 0: one. Lane g has group g. */
  int groups, kept_groups, best_of_group;
  bool has_bias;

  TW_CONSTEXPR int per_lane() const { return (count + 31) / 32; }
  TW_CONSTEXPR bool is_legal() const {
    return threads % 32 == 0 && chosen > 0 && chosen <= count && per_lane() <= 32 && logits_stride >= count &&
           (in_turn == 0 || !(compared || normalized)) &&
           (groups == 0 ||
               (compared && groups <= 32 && count % groups == 0 && chosen <= kept_groups * (count / groups)));
  }
};

template <RouteConfig config, typename Bias = f32> struct RouteBuffers {
  const f32 *logits;
  i32 *experts;
  /* Of the first choice of each row, of the second, … */
  f32 *weights[config.chosen];
  const Bias *bias;
};

/* The best of what lanes have, of equal ones the first; `none`: of a lane that has nothing. The same in all lanes. */
TW_DEVICE void route_best(int &best, float &most, int none) {
  for (int w = 16; w > 0; w /= 2) {
    const float m = __shfl_xor_sync(ALL_LANES, most, w);
    const int e = __shfl_xor_sync(ALL_LANES, best, w);
    if (e < none && (best == none || m > most || (!(most > m) && e < best))) { best = e; most = m; }
  }
  best = __shfl_sync(ALL_LANES, best, 0);
  most = __shfl_sync(ALL_LANES, most, 0);
}

/* Numbers in the order of x: those of −0 and 0 are equal, and NaN is less than all but LEAST. */
constexpr int LEAST = (int)0x80000000u;
TW_DEVICE int route_order(float x) {
  const int bits = (int)__float_as_uint(add(x, 0.0f));
  return x == x ? (bits < 0 ? bits ^ 0x7fffffff : bits) : LEAST + 1;
}

/* The number that has an order; that of NaN is NaN. */
TW_DEVICE float route_number(int order) {
  return __uint_as_float((unsigned)(order < 0 ? order ^ 0x7fffffff : order));
}

/*
 * What is left to choose of a row: lane l has experts l, l + 32, …. Those that are taken or not there have the order
 * LEAST. Whatever is compared with NaN, some expert is chosen.
 */
template <RouteConfig config> struct RouteOpen {
  int orders[config.per_lane()];

  /* Takes the best expert; its order. The same in all lanes. */
  TW_DEVICE int take(int lane, int &best) {
    int top = orders[0];
#pragma unroll
    for (int i = 1; i < config.per_lane(); i++) top = max(top, orders[i]);
    const int largest = __reduce_max_sync(ALL_LANES, top);
    int own = config.count;
#pragma unroll
    for (int i = config.per_lane() - 1; i >= 0; i--)
      if (orders[i] == largest) own = 32 * i + lane;
    best = __reduce_min_sync(ALL_LANES, own);
#pragma unroll
    for (int i = 0; i < config.per_lane(); i++)
      if (best == 32 * i + lane) orders[i] = LEAST;
    return largest;
  }
};

/*
 * What a row chooses: lane l has choices l, l + 32, …. What is computed of a choice is computed once, by its lane: many
 * rows share a multiprocessor, whose instructions are what they wait for.
 */
template <RouteConfig config> struct RouteChoices {
  static constexpr int per_lane = (config.chosen + 31) / 32;
  int experts[per_lane];
  float weights[per_lane];

  TW_DEVICE void set(int lane, int s, int expert, float weight) {
    if (lane != s % 32) return;
    experts[s / 32] = expert;
    weights[s / 32] = weight;
  }
  template <typename F> TW_DEVICE void each(int lane, const F &f) {
#pragma unroll
    for (int i = 0; i < per_lane; i++)
      if (32 * i + lane < config.chosen) f(experts[i], weights[i]);
  }
  /* The sum of weights, in order of choice. */
  TW_DEVICE float sum() const {
    float all = 0.0f;
#pragma unroll
    for (int s = 0; s < config.chosen; s++) all = add(all, __shfl_sync(ALL_LANES, weights[s / 32], s % 32));
    return all;
  }
  /* Stores a row's experts, and their weights as parts of `total` unless it is 1. */
  template <typename Buffers> TW_DEVICE void store(int row, int lane, float total, const Buffers &buffers) {
    each(lane, [&](int, float &weight) {
      if (total != 1.0f) weight /= total;
      if constexpr (config.factor != 0) weight = mul(weight, (float)config.factor);
    });
#pragma unroll
    for (int s = 0; s < config.chosen; s++) {
      if (lane != s % 32) continue;
      buffers.experts[(long long)row * config.experts_stride + s] = experts[s / 32];
      buffers.weights[s][row] = weights[s / 32];
    }
  }
};

/* The groups that are kept, a bit for each. `number(e)`: what is compared of an expert. */
template <RouteConfig config, typename Number> TW_DEVICE unsigned route_groups(int lane, const Number &number) {
  constexpr int size = config.count / config.groups;
  float worth = 0.0f;
  if (lane < config.groups) {
    /* The best before: a next one is smaller, or as large and further behind. */
    int last = -1;
    float bound = infinity();
    for (int i = 0; i < config.best_of_group; i++) {
      int best = -1;
      float most = -infinity();
      for (int at = 0; at < size; at++) {
        const float x = number(lane * size + at);
        const bool is_left = i == 0 || x < bound || (x == bound && at > last);
        if (is_left && (best < 0 || x > most)) { best = at; most = x; }
      }
      last = best;
      bound = most;
      worth = add(worth, most);
    }
  }
  unsigned kept = 0;
  for (int i = 0; i < config.kept_groups; i++) {
    const bool has = lane < config.groups && !(kept >> lane & 1);
    int best = has ? lane : config.groups;
    float most = has ? worth : -infinity();
    route_best(best, most, config.groups);
    kept |= 1u << best;
  }
  return kept;
}

template <RouteConfig config, typename Bias>
TW_DEVICE void route_compared(int row, int lane, const RouteBuffers<config, Bias> &buffers) {
  constexpr int count = config.count, per_lane = config.per_lane();
  const float *z = buffers.logits + (long long)row * config.logits_stride;
  float top = -infinity(), total = 0.0f;
  if constexpr (!config.sigmoid) {
    for (int e = lane; e < count; e += 32) top = max(top, z[e]);
    for (int w = 16; w > 0; w /= 2) top = max(top, __shfl_xor_sync(ALL_LANES, top, w));
    for (int e = lane; e < count; e += 32) total = add(total, expf(z[e] - top));
    total = warp_sum(total);
  }
  const auto score = [&](int e) {
    if constexpr (config.sigmoid) return 1.0f / add(1.0f, expf(-z[e]));
    else return expf(z[e] - top) / total;
  };
  const auto number = [&](int e) {
    if constexpr (config.has_bias) return add(score(e), load(buffers.bias + e));
    else return score(e);
  };
  unsigned kept = ALL_LANES;
  if constexpr (config.groups > 0) kept = route_groups<config>(lane, number);
  constexpr int size = config.groups > 0 ? count / config.groups : count;
  RouteOpen<config> open;
#pragma unroll
  for (int i = 0; i < per_lane; i++) {
    const int e = 32 * i + lane;
    open.orders[i] = e < count && (kept >> (e / size) & 1) ? route_order(number(e)) : LEAST;
  }
  RouteChoices<config> choices{};
#pragma unroll
  for (int s = 0; s < config.chosen; s++) {
    int best;
    open.take(lane, best);
    choices.set(lane, s, best, 0.0f);
  }
  choices.each(lane, [&](int expert, float &weight) { weight = score(expert); });
  choices.store(row, lane, config.normalized ? choices.sum() : 1.0f, buffers);
}

/* The sum over open experts near the one with logit `top`. Lane l has the logits `own` of experts l, l + 32, …. */
template <RouteConfig config, int per_lane>
TW_DEVICE float route_near(const float (&own)[per_lane], const RouteOpen<config> &open, float top) {
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < per_lane; i++) {
    const bool is_far = add(top, -own[i]) / max(fabsf(own[i]), top) > (float)config.in_turn;
    if (open.orders[i] != LEAST && !is_far) total = add(total, expf(own[i] - top));
  }
  return warp_sum(total);
}

template <RouteConfig config, typename Bias>
TW_DEVICE void route_row(int row, int lane, const RouteBuffers<config, Bias> &buffers) {
  static_assert(config.is_legal());
  constexpr int count = config.count, per_lane = config.per_lane();
  if constexpr (config.compared) return route_compared<config>(row, lane, buffers);
  const float *z = buffers.logits + (long long)row * config.logits_stride;
  float own[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; i++) own[i] = 32 * i + lane < count ? z[32 * i + lane] : -infinity();
  RouteOpen<config> open;
#pragma unroll
  for (int i = 0; i < per_lane; i++) open.orders[i] = 32 * i + lane < count ? route_order(own[i]) : LEAST;
  RouteChoices<config> choices{};
  float top = 0.0f;
#pragma unroll
  for (int s = 0; s < config.chosen; s++) {
    int best;
    float weight;
    if constexpr (config.in_turn != 0) {
      const RouteOpen<config> before = open;
      weight = route_number(open.take(lane, best));
      weight = 1.0f / route_near<config>(own, before, weight);
    } else {
      weight = route_number(open.take(lane, best));
      if (s == 0) top = weight;
    }
    choices.set(lane, s, best, weight);
  }
  float total = 1.0f;
  if constexpr (config.in_turn == 0) {
    choices.each(lane, [&](int, float &weight) { weight = expf(weight - top); });
    if constexpr (config.normalized) {
      total = choices.sum();
    } else {
      total = 0.0f;
#pragma unroll
      for (int i = 0; i < per_lane; i++)
        if (32 * i + lane < count) total = add(total, expf(own[i] - top));
      total = warp_sum(total);
    }
  }
  choices.store(row, lane, total, buffers);
}

/* The kernel, once the one before has ended (await_previous). */
template <RouteConfig config, typename Bias>
TW_DEVICE void route(int rows, const RouteBuffers<config, Bias> &buffers) {
  const int row = blockIdx.x * (config.threads / 32) + threadIdx.x / 32;
  if (row < rows) route_row<config>(row, threadIdx.x % 32, buffers);
}

}  // namespace tw
