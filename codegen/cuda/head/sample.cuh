/*
 * The choice of tokens from logits: biases, penalties and masks, filters (head/filters.cuh), the draw (head/draw.cuh),
 * and the log-probability of what was chosen, of the logits as they were. A block a row, which never leaves the device.
 * Logits are changed in place, and read again by other threads of the block: nothing here is __restrict__.
 *
 * Shared memory: one Room.
 */
#pragma once
#include "head/filters.cuh"
#include "lib/launch.cuh"

namespace tw {

/* Vectors of rows, of entries (tokens whose logits change), and of tokens of the call (ir/sampleInputs.ts). */
struct SampleBuffers {
  f32 *logits;
  const f32 *top, *sum;
  const f32 *inverse_temperature;
  const i32 *low, *high, *top_k;
  const f32 *top_p, *min_log_p, *repetition, *presence, *frequency;
  const i32 *first, *end, *entry_token;
  const f32 *entry_bias;
  const i32 *entry_count, *path_token, *path_row, *is_generated, *mask_row, *mask;
  /* What entries' logits were. */
  f32 *saved;
  i32 *token;
  f32 *log_prob;
  const i32 *best_count;
  i32 *best_tokens;
  f32 *best_log_probs;
};

/* A logit after penalties. `count`: how often its token was generated; -1: it is not on the path. */
TW_DEVICE float penalized(float x, int count, float repetition, float presence, float frequency) {
  if (count >= 0 && repetition != 1.0f) x = x > 0.0f ? x / repetition : mul(x, repetition);
  return count > 0 ? sub(x, add(presence, mul((float)count, frequency))) : x;
}

/* Writes the `wanted` most likely tokens of a row, and zeros behind them. */
template <SampleConfig config>
TW_DEVICE void write_best(Room<config> &room, const float *z, float top, double total, int wanted, int *tokens,
    float *log_probs) {
  const int self = threadIdx.x;
  int found = 0;
  if (wanted > 0) {
    const TokensLeft left = keep_first(room, { z, 1.0f, top }, { -infinity(), LAST_TOKEN }, wanted, 1.0f);
    __syncthreads();
    if (self == 0) room.count = 0;
    __syncthreads();
    for (int j = self; j < config.vocab; j += config.threads) {
      if (!is_left(left, z[j], j)) continue;
      const int at = atomicAdd(&room.count, 1);
      if (at < config.max_best) {
        room.s[at] = z[j];
        room.token[at] = j;
      }
    }
    __syncthreads();
    found = min(room.count, config.max_best);
    if (self < found) {
      int rank = 0;
      for (int i = 0; i < found; i++)
        rank += room.s[i] > room.s[self] || (room.s[i] == room.s[self] && room.token[i] < room.token[self]);
      tokens[rank] = room.token[self];
      log_probs[rank] = (float)((double)room.s[self] - total);
    }
  }
  for (int i = found + self; i < config.max_best; i += config.threads) {
    tokens[i] = 0;
    log_probs[i] = 0.0f;
  }
}

/* The kernel, once the one before has ended (await_previous). `entries`: of all rows. */
template <SampleConfig config> TW_DEVICE void sample(int rows, int entries, const SampleBuffers &buffers) {
  static_assert(sizeof(Room<config>) <= config.shared_bytes && config.vocab < 1 << 19 && config.threads % 32 == 0 &&
      config.max_best <= config.threads);
  TW_DYNAMIC_SHARED(shared_memory, 128);
  Room<config> &room = *(Room<config> *)shared_memory;
  const int row = blockIdx.x, self = threadIdx.x;
  if (row >= rows) return;
  float *const z = buffers.logits + (long long)row * config.logits_stride;
  const float top = buffers.top[row];
  const double total = (double)top + log((double)buffers.sum[row]);
  /* The most likely tokens, of the logits as they are. */
  write_best(room, z, top, total, min(buffers.best_count[row], config.max_best),
      buffers.best_tokens + (long long)row * config.tokens_stride,
      buffers.best_log_probs + (long long)row * config.log_probs_stride);
  /* Biases and penalties change logits in place; what they were is kept beside the entries. */
  const float repetition = buffers.repetition[row], presence = buffers.presence[row],
      frequency = buffers.frequency[row];
  const int first = buffers.first[row] < 0 ? 0 : buffers.first[row], end = min(buffers.end[row], entries);
  const int own = buffers.is_generated[row] == 1 ? buffers.path_token[buffers.path_row[row]] : -1;
  const float own_logit = own < 0 ? 0.0f : z[own];
  if (self == 0) room.is_listed = 0;
  __syncthreads();
  for (int i = first + self; i < end; i += config.threads) {
    const int token = buffers.entry_token[i], count = buffers.entry_count[i];
    const float x = z[token];
    buffers.saved[i] = x;
    if (token == own) room.is_listed = 1;
    z[token] = penalized(add(x, buffers.entry_bias[i]), token != own ? count : count < 0 ? 1 : count + 1, repetition,
        presence, frequency);
  }
  __syncthreads();
  if (self == 0 && own >= 0 && !room.is_listed) z[own] = penalized(own_logit, 1, repetition, presence, frequency);
  __syncthreads();
  /* Nobody is given a token outside the row's mask. */
  const int mask = buffers.mask_row[row];
  if (mask >= 0) {
    const unsigned *const allowed = (const unsigned *)buffers.mask + (long long)mask * config.mask_stride;
    for (int j = self; j < config.vocab; j += config.threads)
      if (!(allowed[j / 32] >> (j % 32) & 1u)) z[j] = -infinity();
    __syncthreads();
  }
  const Draw draw = { buffers.inverse_temperature[row], buffers.low[row], buffers.high[row] };
  Drawn drawn = { -infinity(), config.vocab, 0.0f };
  const float heat = draw.heat == 0.0f ? 1.0f : draw.heat;
  for (int j = self; j < config.vocab; j += config.threads) drawn.take_better(mul(z[j], heat), j, z[j]);
  drawn = room.best(drawn);
  if (draw.heat != 0.0f) {
    const RowScores scores = { z, heat, drawn.score };
    TokensLeft left = { add(drawn.score, buffers.min_log_p[row]), LAST_TOKEN };
    const int k = buffers.top_k[row];
    const float p = buffers.top_p[row];
    if (k > 0) left = keep_first(room, scores, left, k, 1.0f);
    __syncthreads();
    if (p < 1.0f) left = keep_first(room, scores, left, 0, p);
    drawn = { -infinity(), config.vocab, 0.0f };
    for (int j = self; j < config.vocab; j += config.threads) {
      if (is_left(left, scores.of(j), j)) drawn.take_better(draw.score(z[j], j), j, z[j]);
    }
    drawn = room.best(drawn);
  }
  const int token = drawn.at < config.vocab ? drawn.at : 0;
  if (self == 0) room.chosen = token == own ? own_logit : z[token];
  __syncthreads();
  for (int i = first + self; i < end; i += config.threads) {
    if (buffers.entry_token[i] == token) room.chosen = buffers.saved[i];
  }
  __syncthreads();
  if (self == 0) {
    buffers.token[row] = token;
    buffers.log_prob[row] = (float)((double)room.chosen - total);
  }
}

}  // namespace tw
