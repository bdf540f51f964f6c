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

/*
 * Takes the best expert that is not taken yet: lane l has experts l, l + 32, …, whose numbers are `own` and whose bits
 * in `taken` are those that are taken. Whatever is compared with NaN, some expert is chosen.
 */
template <int count, int per_lane>
TW_DEVICE int route_next(int lane, const float (&own)[per_lane], unsigned &taken, float &most) {
  int best = count, top = LEAST;
  float own_most = -infinity();
#pragma unroll
  for (int i = 0; i < per_lane; i++) {
    const int order = route_order(own[i]);
    if (!(taken >> i & 1) && order > top) { best = 32 * i + lane; top = order; own_most = own[i]; }
  }
  const int largest = __reduce_max_sync(ALL_LANES, top);
  best = __reduce_min_sync(ALL_LANES, top == largest ? best : count);
  most = __shfl_sync(ALL_LANES, own_most, best % 32);
  if (best % 32 == lane) taken |= 1u << best / 32;
  return best;
}

template <RouteConfig config> TW_DEVICE float route_weight(float weight) {
  if constexpr (config.factor == 0) return weight;
  else return mul(weight, (float)config.factor);
}

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
  constexpr int count = config.count, per_lane = config.per_lane(), chosen = config.chosen;
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
  float own[per_lane];
  unsigned taken = 0;
#pragma unroll
  for (int i = 0; i < per_lane; i++) {
    const int e = 32 * i + lane;
    const bool is_open = e < count && (kept >> (e / size) & 1);
    own[i] = is_open ? number(e) : -infinity();
    if (!is_open) taken |= 1u << i;
  }
  float weight[chosen], sum = 0.0f;
#pragma unroll
  for (int s = 0; s < chosen; s++) {
    float most;
    const int best = route_next<count>(lane, own, taken, most);
    weight[s] = score(best);
    sum = add(sum, weight[s]);
    if (lane == 0) buffers.experts[(long long)row * config.experts_stride + s] = best;
  }
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < chosen; s++)
      buffers.weights[s][row] = route_weight<config>(config.normalized ? weight[s] / sum : weight[s]);
  }
}

/*
 * The sum over experts near the one with logit `top`. Lane l has experts l, l + 32, …, whose logits are `own` and whose
 * bits in `taken` are those that are chosen before.
 */
template <RouteConfig config, int per_lane>
TW_DEVICE float route_near(const float (&own)[per_lane], unsigned taken, float top) {
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < per_lane; i++) {
    const bool is_far = add(top, -own[i]) / max(fabsf(own[i]), top) > (float)config.in_turn;
    if (!(taken >> i & 1) && !is_far) total = add(total, expf(own[i] - top));
  }
  return warp_sum(total);
}

template <RouteConfig config, typename Bias>
TW_DEVICE void route_row(int row, int lane, const RouteBuffers<config, Bias> &buffers) {
  static_assert(config.is_legal());
  constexpr int count = config.count, per_lane = config.per_lane(), chosen = config.chosen;
  if constexpr (config.compared) return route_compared<config>(row, lane, buffers);
  const float *z = buffers.logits + (long long)row * config.logits_stride;
  float own[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; i++) own[i] = 32 * i + lane < count ? z[32 * i + lane] : -infinity();
  unsigned taken = 0;
#pragma unroll
  for (int i = 0; i < per_lane; i++)
    if (32 * i + lane >= count) taken |= 1u << i;
  float weight[chosen], top = 0.0f;
#pragma unroll
  for (int s = 0; s < chosen; s++) {
    float most;
    const unsigned before = taken;
    const int best = route_next<count>(lane, own, taken, most);
    if (s == 0) top = most;
    if constexpr (config.in_turn != 0) weight[s] = 1.0f / route_near<config>(own, before, most);
    else weight[s] = expf(most - top);
    if (lane == 0) buffers.experts[(long long)row * config.experts_stride + s] = best;
  }
  float total = 0.0f;
  if constexpr (config.in_turn != 0) {
    total = 1.0f;
  } else if constexpr (config.normalized) {
    for (int s = 0; s < chosen; s++) total = add(total, weight[s]);
  } else {
#pragma unroll
    for (int i = 0; i < per_lane; i++)
      if (32 * i + lane < count) total = add(total, expf(own[i] - top));
    total = warp_sum(total);
  }
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < chosen; s++) buffers.weights[s][row] = route_weight<config>(weight[s] / total);
  }
}

/* The kernel, once the one before has ended (await_previous). */
template <RouteConfig config, typename Bias>
TW_DEVICE void route(int rows, const RouteBuffers<config, Bias> &buffers) {
  const int row = blockIdx.x * (config.threads / 32) + threadIdx.x / 32;
  if (row < rows) route_row<config>(row, threadIdx.x % 32, buffers);
}

}  // namespace tw
