/* Draws of tokens by Gumbel's noise, which is a function of the token and a key (ir/gumbel.ts). */
#pragma once
#include "lib/arithmetic.cuh"

namespace tw {

TW_DEVICE unsigned hash(unsigned a, unsigned b) {
  unsigned x = a ^ (b * 0x9e3779b9u + 0x7f4a7c15u);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
TW_DEVICE float gumbel_noise(int token, int low, int high) {
  const unsigned bits = hash(hash((unsigned)token, (unsigned)low), (unsigned)high);
  const float u = mul(add((float)(int)(bits >> 1), 0.5f), 4.656612873077393e-10f);
  const float small = mul(u, add(1.0f, mul(u, add(0.5f, mul(u, 0.33333334f)))));
  return -logf(u < 0.015625f ? small : -logf(add(1.0f, -u)));
}

/* What the tokens of a row are drawn by: 1 / temperature, both halves of the key, and the tokens of columns. */
struct Draw {
  float heat;
  int low, high;
  const float *ids = nullptr;

  /* What the largest wins by. At an inverse temperature of 0 the scores are the logits. */
  TW_DEVICE float score(float z, int column) const {
    if (heat == 0.0f || z == -infinity()) return z;
    return add(mul(z, heat), gumbel_noise(ids == nullptr ? column : (int)ids[column], low, high));
  }
};

/* A token that may be drawn, with its score and logit. Of equal scores the first token wins, whatever the order. */
struct Drawn {
  float score;
  int at;
  float z;

  TW_DEVICE void take_better(float other, int token, float logit) {
    if (other > score || (other == score && token < at)) {
      score = other;
      at = token;
      z = logit;
    }
  }
  /* The best of `lanes` neighbouring lanes of a warp, in each of them. */
  TW_DEVICE void take_best_of(int lanes) {
    for (int w = lanes / 2; w > 0; w /= 2) {
      const float other = __shfl_xor_sync(ALL_LANES, score, w);
      const int token = __shfl_xor_sync(ALL_LANES, at, w);
      const float logit = __shfl_xor_sync(ALL_LANES, z, w);
      take_better(other, token, logit);
    }
  }
};

}  // namespace tw
