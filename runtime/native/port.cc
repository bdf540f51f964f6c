#include "port.h"

namespace tw {
namespace {

napi_typedarray_type arrayTypeOf(DType dtype) {
  switch (dtype) {
    case DType::F32: return napi_float32_array;
    case DType::I32: return napi_int32_array;
    case DType::F16:
    case DType::BF16: return napi_uint16_array;
  }
  fail("an element type without a typed array");
}

}  // namespace

DType parseDType(const Napi::Value &value, const std::string &what) {
  const std::string name = stringArg(value, what);
  if (name == "f32") return DType::F32;
  if (name == "f16") return DType::F16;
  if (name == "bf16") return DType::BF16;
  if (name == "i32") return DType::I32;
  fail(what + " must be f32, f16, bf16 or i32, not " + name);
}

Port Port::parse(const Napi::Value &value, const Extents &extents, size_t slots, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  if (slots == 0) fail(what + ".slot: the program has no slots");
  Port port;
  port.slot = static_cast<size_t>(integerArg(object.Get("slot"), what + ".slot", 0, static_cast<int64_t>(slots) - 1));
  port.dtype = parseDType(object.Get("dtype"), what + ".dtype");
  port.rows = extents.parseExtent(object.Get("rows"), what + ".rows");
  port.columns = static_cast<size_t>(integerArg(object.Get("columns"), what + ".columns", 1, MAX_EXTENT));
  port.stride = static_cast<size_t>(
      integerArg(object.Get("stride"), what + ".stride", static_cast<int64_t>(port.columns), MAX_EXTENT));
  // Every later size is at most this one.
  (void)product(product(port.rows.in(extents.most()), port.stride, "a port"), bytesOf(port.dtype), "a port");
  return port;
}

const uint8_t *Port::parseData(const Napi::Value &value, const Counts &counts, const std::string &what) const {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != arrayTypeOf(dtype)) {
    fail(what + " is a typed array of the wrong kind");
  }
  const auto array = value.As<Napi::TypedArray>();
  const size_t wanted = elements(counts);
  if (array.ElementLength() != wanted) {
    fail(what + " has " + std::to_string(array.ElementLength()) + " entries, not " + std::to_string(wanted));
  }
  return static_cast<const uint8_t *>(array.ArrayBuffer().Data()) + array.ByteOffset();
}

void Port::scatter(uint8_t *target, const uint8_t *dense, const Counts &counts) const {
  const size_t count = rows.in(counts);
  const size_t rowBytes = columns * bytesOf(dtype);
  if (count == 0) return;
  if (stride == columns) {
    std::memcpy(target, dense, count * rowBytes);
    return;
  }
  for (size_t row = 0; row < count; row++)
    std::memcpy(target + row * stride * bytesOf(dtype), dense + row * rowBytes, rowBytes);
}

Napi::ArrayBuffer Port::gather(Napi::Env env, const uint8_t *source, const Counts &counts) const {
  const size_t count = rows.in(counts);
  const size_t rowBytes = columns * bytesOf(dtype);
  auto dense = Napi::ArrayBuffer::New(env, count * rowBytes);
  if (count == 0) return dense;
  auto *target = static_cast<uint8_t *>(dense.Data());
  if (stride == columns) {
    std::memcpy(target, source, count * rowBytes);
    return dense;
  }
  for (size_t row = 0; row < count; row++)
    std::memcpy(target + row * rowBytes, source + row * stride * bytesOf(dtype), rowBytes);
  return dense;
}

}  // namespace tw
