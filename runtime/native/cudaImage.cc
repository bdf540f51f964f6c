#include "cudaImage.h"

#include <cctype>
#include <cstdint>
#include <cstring>

namespace tw {
namespace {

/** Bytes that are read at checked offsets only. */
class Bytes {
 public:
  Bytes(const char *data, size_t size) : data_(data), size_(size) {}
  size_t size() const { return size_; }

  /** False where the value does not lie inside. */
  template <typename T>
  bool read(size_t offset, T &value) const {
    if (offset > size_ || sizeof(T) > size_ - offset) return false;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return true;
  }

  /** Empty where the range does not lie inside. */
  Bytes part(size_t offset, size_t length) const {
    return offset <= size_ && length <= size_ - offset ? Bytes(data_ + offset, length) : Bytes(data_, 0);
  }

  /** Up to the first zero; empty where there is none. */
  std::string text(size_t offset) const {
    if (offset >= size_) return "";
    const void *end = std::memchr(data_ + offset, 0, size_ - offset);
    return end == nullptr ? "" : std::string(data_ + offset, static_cast<const char *>(end));
  }

 private:
  const char *data_;
  size_t size_;
};

/** Parts of an ELF header and of a section's header (64 bits, little-endian). */
constexpr size_t SECTION_TABLE = 40;
constexpr size_t SECTION_SIZE = 58;
constexpr size_t SECTION_COUNT = 60;
constexpr size_t NAMES_INDEX = 62;
constexpr size_t SECTION_OFFSET = 24;
constexpr size_t SECTION_BYTES = 32;
const std::string INFO = ".nv.info.";

/** Attributes are a form, a number and 16 bits: the value itself or, in this form, the bytes that follow. */
constexpr uint8_t FORM_BYTES = 4;
/** One for each parameter; the size of all together, for kernels that have any. */
constexpr uint8_t PARAMETER_INFO = 0x17;
constexpr uint8_t PARAMETERS_SIZE = 0x19;

/** Walks the attributes of a kernel. False where they are not what is known here. */
bool countParameters(const Bytes &info, size_t &count) {
  bool hasSize = false;
  count = 0;
  for (size_t at = 0; at < info.size();) {
    uint8_t form = 0;
    uint8_t attribute = 0;
    uint16_t value = 0;
    if (!info.read(at, form) || !info.read(at + 1, attribute) || !info.read(at + 2, value)) return false;
    if (form == 0 || form > FORM_BYTES) return false;
    at += 4 + (form == FORM_BYTES ? value : 0);
    if (at > info.size()) return false;
    if (form == FORM_BYTES && attribute == PARAMETER_INFO) count++;
    if (attribute == PARAMETERS_SIZE) hasSize = value > 0;
  }
  // Parameters in a newer form than this would be counted as none.
  return hasSize == (count > 0);
}

void readCubin(const Bytes &image, std::map<std::string, size_t> &counts) {
  uint64_t table = 0;
  uint16_t size = 0;
  uint16_t sections = 0;
  uint16_t names = 0;
  if (!image.read(SECTION_TABLE, table) || !image.read(SECTION_SIZE, size) || !image.read(SECTION_COUNT, sections) ||
      !image.read(NAMES_INDEX, names))
    return;
  const auto header = [&](size_t index) {
    return table > image.size() ? image.part(0, 0) : image.part(table + index * size, size);
  };
  const auto content = [&](const Bytes &section) {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    if (!section.read(SECTION_OFFSET, offset) || !section.read(SECTION_BYTES, bytes)) return image.part(0, 0);
    return image.part(offset, bytes);
  };
  if (names >= sections) return;
  const Bytes nameTable = content(header(names));
  for (size_t i = 0; i < sections; i++) {
    const Bytes section = header(i);
    uint32_t name = 0;
    if (!section.read(0, name)) continue;
    const std::string text = nameTable.text(name);
    if (text.compare(0, INFO.size(), INFO) != 0) continue;
    size_t count = 0;
    if (countParameters(content(section), count)) counts[text.substr(INFO.size())] = count;
  }
}

bool isNamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.'; }

/** `.entry NAME ( .param …, .param … )`: PTX writes one .param for each. */
void readPtx(const std::string &text, std::map<std::string, size_t> &counts) {
  const std::string entry = ".entry";
  const std::string parameter = ".param";
  for (size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at)) {
    at += entry.size();
    const auto skipSpace = [&] {
      while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) at++;
    };
    skipSpace();
    const size_t start = at;
    while (at < text.size() && isNamePart(text[at])) at++;
    const std::string name = text.substr(start, at - start);
    skipSpace();
    size_t count = 0;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string::npos) return;
      for (size_t p = text.find(parameter, at); p < end; p = text.find(parameter, p + parameter.size())) count++;
      at = end;
    }
    if (!name.empty()) counts[name] = count;
  }
}

}  // namespace

std::map<std::string, size_t> parameterCounts(const char *image, size_t bytes) {
  std::map<std::string, size_t> counts;
  if (bytes == 0) return counts;
  static const char ELF_64_LITTLE[] = {0x7f, 'E', 'L', 'F', 2, 1};
  if (bytes >= sizeof ELF_64_LITTLE && std::memcmp(image, ELF_64_LITTLE, sizeof ELF_64_LITTLE) == 0) {
    readCubin(Bytes(image, bytes), counts);
  } else {
    readPtx(std::string(image, ::strnlen(image, bytes)), counts);
  }
  return counts;
}

}  // namespace tw
