#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tw {
namespace {

constexpr size_t HUGE_PAGE = size_t{2} << 20;
constexpr size_t HUGE_FROM = size_t{4} << 20;

size_t pageBytes() {
  static const long bytes = ::sysconf(_SC_PAGESIZE);
  return bytes > 0 ? static_cast<size_t>(bytes) : 4096;
}

}  // namespace

OpenFile::OpenFile(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) failErrno("Cannot open " + path_);
}

OpenFile::~OpenFile() { ::close(descriptor_); }  // opened for reading: nothing can be lost here

void OpenFile::read(uint8_t *target, size_t offset, size_t length) const {
  for (size_t done = 0; done < length;) {
    const size_t at = offset + done;
    const ssize_t count = ::pread(descriptor_, target + done, length - done, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string why =
          count < 0 ? std::string(std::strerror(errno)) : "it ends there by now: it was cut off while it was read";
      throw CodedError(path_ + " cannot be read at byte " + std::to_string(at) + ": " + why, "FILE_UNREADABLE", "pread",
                       false);
    }
    done += static_cast<size_t>(count);
  }
}

std::shared_ptr<Memory> Memory::mapFile(const std::string &path) {
  auto file = std::make_unique<OpenFile>(path);
  struct stat status {};
  if (::fstat(file->descriptor(), &status) != 0) failErrno("Cannot read the size of " + path);
  if (!S_ISREG(status.st_mode)) fail(path + " is not a regular file");
  if (status.st_size <= 0) fail(path + " is empty");
  const auto bytes = static_cast<size_t>(status.st_size);
  void *mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
  if (mapping == MAP_FAILED) failErrno("Cannot map " + path);
  return std::shared_ptr<Memory>(new Memory(mapping, bytes, static_cast<uint8_t *>(mapping), bytes, std::move(file),
                                            std::make_unique<MappedFile>(mapping, bytes, path)));
}

std::shared_ptr<Memory> Memory::allocate(size_t bytes) {
  if (bytes == 0 || bytes > (size_t{1} << 46)) fail("Cannot allocate " + std::to_string(bytes) + " bytes");
  const bool isHuge = bytes >= HUGE_FROM;
  // Kernels may prefetch, and vector tails may read, a cache line past the end.
  const size_t usable = roundUp(bytes + 64, isHuge ? HUGE_PAGE : pageBytes());
  const size_t mapped = isHuge ? usable + HUGE_PAGE : usable;
  void *mapping = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) failErrno("Cannot allocate " + std::to_string(bytes) + " bytes");
  auto *data = static_cast<uint8_t *>(mapping);
  if (isHuge) {
    data += roundUp(reinterpret_cast<uintptr_t>(data), HUGE_PAGE) - reinterpret_cast<uintptr_t>(data);
#ifdef MADV_HUGEPAGE
    // Only a hint: a kernel without huge pages refuses it, and small pages are right, merely slower.
    (void)::madvise(data, usable, MADV_HUGEPAGE);
#endif
  }
  return std::shared_ptr<Memory>(new Memory(mapping, mapped, data, bytes, nullptr, nullptr));
}

std::shared_ptr<Memory> Memory::reserve(size_t bytes) {
  if (bytes == 0 || bytes > (size_t{1} << 46)) fail("Cannot reserve " + std::to_string(bytes) + " bytes");
  const size_t mapped = roundUp(bytes, HUGE_PAGE) + HUGE_PAGE;
  // Without access, so that no system counts it as memory that was promised.
  void *mapping = ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) failErrno("Cannot reserve " + std::to_string(bytes) + " bytes of addresses");
  const auto at = reinterpret_cast<uintptr_t>(mapping);
  auto *data = reinterpret_cast<uint8_t *>(roundUp(at, HUGE_PAGE));
  return std::shared_ptr<Memory>(new Memory(mapping, mapped, data, bytes, nullptr, nullptr, true));
}

size_t Memory::map(size_t bytes) {
  if (!isReserved_) fail("map: this memory was not reserved, but allocated");
  requireInside(0, bytes, "map");
  const size_t wanted = std::min(roundUp(bytes, pageBytes()), roundUp(size_, pageBytes()));
  const size_t now = roundUp(usable_, pageBytes());
  if (wanted > now) {
    if (::mprotect(data_ + now, wanted - now, PROT_READ | PROT_WRITE) != 0) {
      if (errno != ENOMEM) failErrno("mprotect");
      return usable_;
    }
#ifdef MADV_HUGEPAGE
    (void)::madvise(data_ + now, wanted - now, MADV_HUGEPAGE);  // only a hint
#endif
  } else if (wanted < now) {
    // Mapped anew: pages and the promise of them are gone at once.
    if (::mmap(data_ + wanted, now - wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
               0) == MAP_FAILED)
      failErrno("Cannot give up memory");
  }
  usable_ = std::min(wanted, size_);
  return usable_;
}

size_t Memory::resident() const {
  const size_t page = pageBytes(), pages = roundUp(usable_, page) / page;
  std::vector<unsigned char> isThere(std::min(pages, size_t{1} << 16));
  size_t count = 0;
  for (size_t from = 0; from < pages; from += isThere.size()) {
    const size_t some = std::min(pages - from, isThere.size());
    if (::mincore(data_ + from * page, some * page, isThere.data()) != 0) failErrno("mincore");
    count += static_cast<size_t>(std::count_if(isThere.begin(), isThere.begin() + static_cast<std::ptrdiff_t>(some),
                                               [](unsigned char state) { return (state & 1) != 0; }));
  }
  return count * page;
}

Memory::~Memory() {
  mapped_.reset();  // before another file may be mapped to the same place
  ::munmap(mapping_, mappedBytes_);
}

void Memory::requireInside(size_t offset, size_t length, const std::string &what) const {
  if (!isInside(offset, length, size_)) {
    fail(what + ": bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(length) +
         " lie outside a memory of " + std::to_string(size_) + " bytes");
  }
}

void Memory::requireUsable(size_t offset, size_t length, const std::string &what) const {
  requireInside(offset, length, what);
  if (!isInside(offset, length, usable_))
    fail(what + ": there is memory behind the first " + std::to_string(usable_) + " bytes only, not behind " +
         std::to_string(length) + " from " + std::to_string(offset) + " on");
}

void Memory::copyTo(uint8_t *target, size_t offset, size_t length) const {
  requireUsable(offset, length, "copyTo");
  if (file_) file_->read(target, offset, length);
  else std::memcpy(target, data_ + offset, length);
}

void Memory::advise(size_t offset, size_t length, int advice) const {
  requireInside(offset, length, "advise");
  const size_t page = pageBytes();
  const auto base = reinterpret_cast<uintptr_t>(data_);
  uintptr_t begin = base + offset;
  uintptr_t end = begin + length;
  if (advice == MADV_DONTNEED) {
    if (isWritable_) fail("advise: dropping the pages of writable memory would lose its contents");
    begin = roundUp(begin, page);
    end = end / page * page;
  } else {
    begin = begin / page * page;
  }
  if (begin >= end) return;
  if (::madvise(reinterpret_cast<void *>(begin), end - begin, advice) != 0) failErrno("madvise");
}

Slot Slot::parse(const Napi::Value &value, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  Slot slot;
  slot.memory = memoryArg(object.Get("memory"), what + ".memory");
  slot.offset = sizeArg(object.Get("offset"), what + ".offset");
  slot.bytes = sizeArg(object.Get("bytes"), what + ".bytes");
  slot.memory->requireInside(slot.offset, slot.bytes, what);
  return slot;
}

const napi_type_tag MemoryWrap::TAG = {0x7469'6c65'7772'6974, 0x6d65'6d6f'7279'0001};

MemoryWrap::MemoryWrap(const Napi::CallbackInfo &info) : ObjectWrap(info) {
  const Napi::Value source = info[0];
  // A path maps that file; a number allocates that many bytes, or reserves addresses for them.
  if (source.IsString()) memory_ = Memory::mapFile(stringArg(source, "path"));
  else if (info[1].IsString() && stringArg(info[1], "kind") == "reserved")
    memory_ = Memory::reserve(sizeArg(source, "bytes"));
  else memory_ = Memory::allocate(sizeArg(source, "bytes"));
  info.This().As<Napi::Object>().TypeTag(&TAG);
}

const std::shared_ptr<Memory> &MemoryWrap::get() const {
  if (!memory_) fail("This memory was released already");
  return memory_;
}

Napi::Value MemoryWrap::sizeBytes(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), static_cast<double>(get()->size()));
}

Napi::Value MemoryWrap::address(const Napi::CallbackInfo &info) {
  return Napi::BigInt::New(info.Env(), static_cast<uint64_t>(reinterpret_cast<uintptr_t>(get()->data())));
}

Napi::Value MemoryWrap::isWritable(const Napi::CallbackInfo &info) {
  return Napi::Boolean::New(info.Env(), get()->isWritable());
}

void MemoryWrap::release(const Napi::CallbackInfo &) { memory_.reset(); }

void MemoryWrap::advise(const Napi::CallbackInfo &info) {
  const std::string advice = stringArg(info[0], "advice");
  if (advice != "willneed" && advice != "dontneed") fail("advice must be willneed or dontneed, not " + advice);
  const size_t offset = info[1].IsUndefined() ? 0 : sizeArg(info[1], "offset");
  const size_t length =
      info[2].IsUndefined() ? get()->size() - std::min(offset, get()->size()) : sizeArg(info[2], "length");
  get()->advise(offset, length, advice == "willneed" ? MADV_WILLNEED : MADV_DONTNEED);
}

void MemoryWrap::write(const Napi::CallbackInfo &info) {
  const size_t offset = sizeArg(info[0], "offset");
  if (!info[1].IsTypedArray()) fail("write takes a typed array");
  const auto source = info[1].As<Napi::TypedArray>();
  if (!get()->isWritable()) fail("This memory is a mapped file and cannot be written");
  get()->requireUsable(offset, source.ByteLength(), "write");
  if (source.ByteLength() == 0) return;
  std::memcpy(get()->data() + offset, static_cast<const uint8_t *>(source.ArrayBuffer().Data()) + source.ByteOffset(),
              source.ByteLength());
}

Napi::Value MemoryWrap::read(const Napi::CallbackInfo &info) {
  const size_t offset = sizeArg(info[0], "offset");
  const size_t bytes = sizeArg(info[1], "bytes");
  get()->requireUsable(offset, bytes, "read");
  Napi::ArrayBuffer copy = Napi::ArrayBuffer::New(info.Env(), bytes);
  if (bytes > 0) std::memcpy(copy.Data(), get()->data() + offset, bytes);
  return copy;
}

Napi::Value MemoryWrap::map(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), static_cast<double>(get()->map(sizeArg(info[0], "bytes"))));
}

Napi::Value MemoryWrap::residentBytes(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), static_cast<double>(get()->resident()));
}

Napi::Value MemoryWrap::usableBytes(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), static_cast<double>(get()->usable()));
}

Napi::Function initMemory(Napi::Env env) {
  return MemoryWrap::DefineClass(env, "Memory",
                                 {MemoryWrap::InstanceAccessor<&MemoryWrap::sizeBytes>("sizeBytes"),
                                  MemoryWrap::InstanceAccessor<&MemoryWrap::address>("address"),
                                  MemoryWrap::InstanceAccessor<&MemoryWrap::isWritable>("isWritable"),
                                  MemoryWrap::InstanceMethod<&MemoryWrap::release>("release"),
                                  MemoryWrap::InstanceMethod<&MemoryWrap::advise>("advise"),
                                  MemoryWrap::InstanceMethod<&MemoryWrap::write>("write"),
                                  MemoryWrap::InstanceMethod<&MemoryWrap::read>("read"),
                                  MemoryWrap::InstanceMethod<&MemoryWrap::map>("map"),
                                  MemoryWrap::InstanceAccessor<&MemoryWrap::residentBytes>("residentBytes"),
                                  MemoryWrap::InstanceAccessor<&MemoryWrap::usableBytes>("usableBytes")});
}

}  // namespace tw
