// Element types of the buffers that kernels write and of a program's inputs and outputs.
#ifndef TILEWRIGHT_DTYPE_H
#define TILEWRIGHT_DTYPE_H
#include <cstddef>

namespace tw {

enum class DType { F32, F16, BF16, I32 };
constexpr size_t bytesOf(DType dtype) { return dtype == DType::F32 || dtype == DType::I32 ? 4 : 2; }

}  // namespace tw
#endif
