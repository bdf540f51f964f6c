/* layers.reduce: logprobReduce, avx512, rows 8. */
/* Buffers: 0 parts, 1 target, 2 logProb, 3 isArgmax */
#include "head/reduce.h"

void k_logprobreduce_d763150db50723a6_f616b558(const tw_launch *launch, int32_t worker, int32_t workers) {
  const ReduceConfig config = {
    .rows = 1, .step = 8, .vocab = 600, .block = 256, .width = 4, .target = 1, .log_prob = 2, .is_argmax = 3,
    .parts_stride = 32,
  };
  tw_log_prob_reduce(config, launch, worker, workers);
}
