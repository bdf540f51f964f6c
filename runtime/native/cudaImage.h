// What a kernel's image says of its kernels without asking the driver.
#ifndef TILEWRIGHT_CUDA_IMAGE_H
#define TILEWRIGHT_CUDA_IMAGE_H
#include <cstddef>
#include <map>
#include <string>

namespace tw {

/**
 * Parameters of each kernel of a cubin or a PTX text. A kernel is absent where the image does not say, or not in a form
 * known here: the layout of cubins is NVIDIA's own (ELF sections .nv.info.NAME, as cuobjdump shows them). Never throws
 * for a bad image and never reads outside it.
 */
std::map<std::string, size_t> parameterCounts(const char *image, size_t bytes);

}  // namespace tw
#endif
