/* A head of few rows by the main loop of gemm/skinny.cuh. */
#pragma once
#include "gemm/skinny.cuh"
#include "head/fewRows.cuh"

namespace tw {

template <SkinnyConfig config, class T, class Prologue, HeadConfig head, class Scale>
TW_DEVICE void skinny_head(int rows, const T *a, const Prologue &prologue,
    const WeightedHead<head, Scale, T> &epilogue) {
  SkinnyProducts<config> products;
  const Tile tile = skinny_products<config>(rows, a, products, prologue, epilogue);
  const int self = forgotten(threadIdx.x);
  skinny_share<config>(tile, self, products);
  end_head<config, config.threads / 32, head, Scale>(tile, self, epilogue);
}

}  // namespace tw
