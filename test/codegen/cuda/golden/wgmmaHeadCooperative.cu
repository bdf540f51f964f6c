/* head: 128 × 256 × 64 by wgmma, cooperative, 3 stages, clusters of 1 */
#include "gemm/hopper.cuh"
#include "head/rows.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Cooperative,
  .tile_m = 128,
  .tile_n = 256,
  .tile_k = 64,
  .stages = 3,
  .cluster = 1,
  .raster = 16,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 256,
  .segments = 1,
  .columns = { 608 },
  .experts = 0,
  .row_values = 1,
  .are_rows_of_threads = false,
  .column_values = 0,
  .has_final_tile = false,
  .has_finish = false,
  .shared_bytes = 149584,
};

struct Prologue {
  static constexpr int row_values = 1, row_sums = 1,
                       row_loads = 4;
  f32 *squares;

  template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const {
    f32 *const squares_row = squares + (long long)row * 32;
    const float squares_sum = sums.sum(squares_row, 16);
    const float v = inverse_sqrt(add(div(squares_sum, 256.0f), 9.999999974752427e-7f));
    if (threadIdx.x % 32 == 0) {
      (values)[0] = v;
    }
  }
};

constexpr HeadConfig head_config = {
  .vocab = 600,
  .columns = 608,
  .parts_stride = 32,
  .cap = 0,
  .draws = false,
  .logits_stride = 0,
};

struct Scale {
  TW_DEVICE float operator()(int row, const float *values) const {
    const float v = (values)[0];
    return v;
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_logprob_3ebfa1286008978c_fe71730a(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    f32 *squares,
    i32 *target,
    f32 *parts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      R,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      SharedTiles{},
      Prologue{ squares },
      NoFinish{},
      HeadEpilogue<head_config, Scale>{ Scale{}, HeadBuffers{ .target = target, .parts = parts } });
}

}  // namespace tw
