// Memory that kernels may see: a read-only mapping of a file, zero-initialised memory of the process, or addresses
// that memory lies behind in part.
#ifndef TILEWRIGHT_MEMORY_H
#define TILEWRIGHT_MEMORY_H
#include "mappedFiles.h"
#include "support.h"

namespace tw {

/** A file, open for reading. */
class OpenFile {
 public:
  /** Throws where it cannot be opened. */
  explicit OpenFile(std::string path);
  ~OpenFile();
  OpenFile(const OpenFile &) = delete;
  OpenFile &operator=(const OpenFile &) = delete;
  int descriptor() const { return descriptor_; }
  /** Throws a CodedError, FILE_UNREADABLE, where the bytes cannot be had or are there no more. */
  void read(uint8_t *target, size_t offset, size_t length) const;

 private:
  std::string path_;
  int descriptor_;
};

/** Owns its pages; unmapped when the last owner (a JavaScript handle, a Program, a running job) lets go. */
class Memory {
 public:
  /** Maps a whole file for reading. Throws where it cannot be opened or is empty. */
  static std::shared_ptr<Memory> mapFile(const std::string &path);
  /** Zeroes, aligned to 64 bytes; from 4 MiB on, aligned to 2 MiB and offered to transparent huge pages. */
  static std::shared_ptr<Memory> allocate(size_t bytes);
  /** Addresses for so many bytes, aligned to 2 MiB, without memory: map() puts it behind the first of them. */
  static std::shared_ptr<Memory> reserve(size_t bytes);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  uint8_t *data() const { return data_; }
  size_t size() const { return size_; }
  bool isWritable() const { return isWritable_; }
  /** Bytes from the first on that there is memory behind. */
  size_t usable() const { return usable_; }
  /**
   * Puts memory behind the first `bytes` of what was reserved, in whole pages, and takes it from behind the others,
   * which nobody may be using. What is new is zero. Less than was asked where the system has no more; returns usable().
   */
  size_t map(size_t bytes);
  /** Bytes of reserved memory that the system holds: those that were touched. */
  size_t resident() const;
  /** madvise on the pages of a range: whole pages inside it for DONTNEED, those touching it otherwise. */
  void advise(size_t offset, size_t length, int advice) const;
  void requireInside(size_t offset, size_t length, const std::string &what) const;
  /** The same of the bytes that there is memory behind. */
  void requireUsable(size_t offset, size_t length, const std::string &what) const;
  /**
   * Copies a range out. That of a file is read, not copied from its pages: no page is mapped for it, and a file that
   * was cut off meanwhile is an error, not a signal.
   */
  void copyTo(uint8_t *target, size_t offset, size_t length) const;

 private:
  Memory(void *mapping, size_t mappedBytes, uint8_t *data, size_t size, std::unique_ptr<OpenFile> file,
         std::unique_ptr<MappedFile> mapped, bool isReserved = false)
      : mapping_(mapping),
        mappedBytes_(mappedBytes),
        data_(data),
        size_(size),
        usable_(isReserved ? 0 : size),
        isReserved_(isReserved),
        file_(std::move(file)),
        mapped_(std::move(mapped)),
        isWritable_(!file_) {}
  void *mapping_;
  size_t mappedBytes_;
  uint8_t *data_;
  size_t size_;
  size_t usable_;
  bool isReserved_;
  std::unique_ptr<OpenFile> file_;  // null for memory of the process, as the next
  std::unique_ptr<MappedFile> mapped_;
  bool isWritable_;
};

class MemoryWrap : public Napi::ObjectWrap<MemoryWrap> {
 public:
  static constexpr const char *NAME = "Memory";
  static const napi_type_tag TAG;
  explicit MemoryWrap(const Napi::CallbackInfo &info);
  /** The memory behind a JavaScript handle; throws once it was released. */
  const std::shared_ptr<Memory> &get() const;

 private:
  friend Napi::Function initMemory(Napi::Env env);
  Napi::Value sizeBytes(const Napi::CallbackInfo &info);
  Napi::Value address(const Napi::CallbackInfo &info);
  Napi::Value isWritable(const Napi::CallbackInfo &info);
  void release(const Napi::CallbackInfo &info);
  void advise(const Napi::CallbackInfo &info);
  void write(const Napi::CallbackInfo &info);
  Napi::Value read(const Napi::CallbackInfo &info);
  Napi::Value map(const Napi::CallbackInfo &info);
  Napi::Value residentBytes(const Napi::CallbackInfo &info);
  Napi::Value usableBytes(const Napi::CallbackInfo &info);
  std::shared_ptr<Memory> memory_;
};

/** A range of a memory, checked once when it is made. */
struct Slot {
  std::shared_ptr<Memory> memory;
  size_t offset = 0;
  size_t bytes = 0;
  uint8_t *data() const { return memory->data() + offset; }
  /** From {memory, offset, bytes}. */
  static Slot parse(const Napi::Value &value, const std::string &what);
};

inline std::shared_ptr<Memory> memoryArg(const Napi::Value &value, const std::string &what) {
  return unwrap<MemoryWrap>(value, what)->get();
}

}  // namespace tw
#endif
