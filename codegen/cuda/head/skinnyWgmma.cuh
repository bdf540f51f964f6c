/* A head of few rows on Hopper, by the main loop of gemm/skinnyWgmma.cuh. */
#pragma once
#include "gemm/skinnyWgmma.cuh"
#include "head/fewRows.cuh"

namespace tw {

template <SkinnyWgmmaConfig config, class Element, class Prologue, HeadConfig head, class Scale>
TW_DEVICE void skinny_wgmma_head(int rows, const TensorMap *a, const Prologue &prologue,
    const Mapped<FewRowsHead<head, Scale>> &epilogue) {
  const Tile tile = skinny_wgmma_products<config, Element>(rows, a, prologue, epilogue);
  end_head<config, config.warps(), head, Scale>(tile, forgotten(threadIdx.x), epilogue);
  skinny_wgmma_end<config>();
}

}  // namespace tw
