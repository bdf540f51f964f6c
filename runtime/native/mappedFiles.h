// Which files are mapped where. A file that is cut off while kernels read it ends the process with SIGBUS; the handler
// of that signal says which file it was.
#ifndef TILEWRIGHT_MAPPED_FILES_H
#define TILEWRIGHT_MAPPED_FILES_H
#include <cstddef>
#include <string>

namespace tw {

/** Known to the handler until it is destroyed. The first one installs the handler. */
class MappedFile {
 public:
  MappedFile(const void *begin, size_t bytes, const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

 private:
  struct Entry *entry_;
};

}  // namespace tw
#endif
