/* head.sample: 256 threads */
#include "head/sample.cuh"

namespace tw {

constexpr SampleConfig config = {
  .vocab = 32000,
  .mask_stride = 1040,
  .logits_stride = 32000,
  .tokens_stride = 32,
  .log_probs_stride = 32,
  .max_best = 32,
  .threads = 256,
  .shared_bytes = 22672,
};

extern "C" __global__ void __launch_bounds__(256, 1)
k_sample_e82e4f9c56aed755_2835ea44(
    int T,
    int R,
    int F,
    int E,
    int M,
    f32 *logits,
    f32 *top,
    f32 *sum_,
    f32 *inverse_temperature,
    i32 *low_,
    i32 *high_,
    i32 *top_k,
    f32 *top_p,
    f32 *min_log_p,
    f32 *repetition,
    f32 *presence,
    f32 *frequency,
    i32 *first_,
    i32 *end_,
    i32 *entry_token,
    f32 *entry_bias,
    i32 *entry_count,
    i32 *path_token,
    i32 *path_row,
    i32 *is_generated,
    i32 *mask_row,
    i32 *mask,
    f32 *saved,
    i32 *token,
    f32 *log_prob,
    i32 *top_count,
    i32 *best_tokens,
    f32 *best_log_probs) {
  await_previous();
  sample<config>(F, E, SampleBuffers{
      .logits = logits,
      .top = top,
      .sum = sum_,
      .inverse_temperature = inverse_temperature,
      .low = low_,
      .high = high_,
      .top_k = top_k,
      .top_p = top_p,
      .min_log_p = min_log_p,
      .repetition = repetition,
      .presence = presence,
      .frequency = frequency,
      .first = first_,
      .end = end_,
      .entry_token = entry_token,
      .entry_bias = entry_bias,
      .entry_count = entry_count,
      .path_token = path_token,
      .path_row = path_row,
      .is_generated = is_generated,
      .mask_row = mask_row,
      .mask = mask,
      .saved = saved,
      .token = token,
      .log_prob = log_prob,
      .best_count = top_count,
      .best_tokens = best_tokens,
      .best_log_probs = best_log_probs,
  });
}

}  // namespace tw
