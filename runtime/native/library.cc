#include "library.h"

#include <dlfcn.h>

namespace tw {

Library::Library(const std::string &path) : path_(path) {
  // A name without a slash would be searched for in the system's folders.
  if (path.find('/') == std::string::npos) fail("A library is loaded by its full path, not by name: " + path);
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char *reason = ::dlerror();
    fail("Cannot load " + path + ": " + (reason == nullptr ? "unknown reason" : reason));
  }
}

Library::~Library() { ::dlclose(handle_); }

void *Library::find(const std::string &symbol) const { return ::dlsym(handle_, symbol.c_str()); }

const napi_type_tag LibraryWrap::TAG = {0x7469'6c65'7772'6974, 0x6c69'6272'6172'0001};

LibraryWrap::LibraryWrap(const Napi::CallbackInfo &info) : ObjectWrap(info) {
  library_ = std::make_shared<Library>(stringArg(info[0], "path"));
  info.This().As<Napi::Object>().TypeTag(&TAG);
}

const std::shared_ptr<Library> &LibraryWrap::get() const {
  if (!library_) fail("This library was released already");
  return library_;
}

Napi::Value LibraryWrap::has(const Napi::CallbackInfo &info) {
  return Napi::Boolean::New(info.Env(), get()->find(stringArg(info[0], "symbol")) != nullptr);
}

void LibraryWrap::release(const Napi::CallbackInfo &) { library_.reset(); }

Napi::Function initLibrary(Napi::Env env) {
  return LibraryWrap::DefineClass(env, "Library",
                                  {LibraryWrap::InstanceMethod<&LibraryWrap::has>("has"),
                                   LibraryWrap::InstanceMethod<&LibraryWrap::release>("release")});
}

}  // namespace tw
