// Encoded matrices as JavaScript describes them (runtime/native.ts, EncodedMatrix).
#ifndef TILEWRIGHT_ENCODED_BINDING_H
#define TILEWRIGHT_ENCODED_BINDING_H
#include "encoded.h"
#include "support.h"

namespace tw {

/**
 * Checks that every part lies inside its memory, and that groups are groups: each of as many columns as it has scales
 * for. Throws; a CodedError, WEIGHTS_DAMAGED, for what the file says.
 */
std::shared_ptr<const Encoded> encodedArg(const Napi::Value &value, const std::string &what);

}  // namespace tw
#endif
