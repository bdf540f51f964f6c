// A shared object of generated kernels.
#ifndef TILEWRIGHT_LIBRARY_H
#define TILEWRIGHT_LIBRARY_H
#include "support.h"

namespace tw {

/** Closed when the last owner lets go: a Program keeps the libraries of its launches. */
class Library {
 public:
  explicit Library(const std::string &path);
  ~Library();
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;
  /** Null where the library has no such symbol. */
  void *find(const std::string &symbol) const;
  const std::string &path() const { return path_; }

 private:
  std::string path_;
  void *handle_;
};

class LibraryWrap : public Napi::ObjectWrap<LibraryWrap> {
 public:
  static constexpr const char *NAME = "Library";
  static const napi_type_tag TAG;
  explicit LibraryWrap(const Napi::CallbackInfo &info);
  const std::shared_ptr<Library> &get() const;

 private:
  friend Napi::Function initLibrary(Napi::Env env);
  Napi::Value has(const Napi::CallbackInfo &info);
  void release(const Napi::CallbackInfo &info);
  std::shared_ptr<Library> library_;
};

}  // namespace tw
#endif
