#include "mappedFiles.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace tw {

/** A node of a list that only grows. Entries are used again, never freed, so that the handler may walk it any time. */
struct Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: free
  std::string path;               // read where the range holds a faulting address: then it is in use and stays as it is
  Entry *next = nullptr;
};

namespace {

std::atomic<Entry *> entries{nullptr};
std::mutex writers;
struct sigaction before {};
std::atomic_flag isReporting = ATOMIC_FLAG_INIT;

const Entry *entryAt(uintptr_t address) {
  for (const Entry *entry = entries.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
    if (address < entry->end.load(std::memory_order_acquire) && address >= entry->begin.load(std::memory_order_acquire))
      return entry;
  }
  return nullptr;
}

void say(const char *text) {
  // The process ends whether or not anybody hears it.
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void sayNumber(uintptr_t value) {
  char digits[24];
  char *at = digits + sizeof digits - 1;
  *at = '\0';
  do *--at = static_cast<char>('0' + value % 10);
  while ((value /= 10) > 0);
  say(at);
}

/** Async-signal-safe throughout. The instruction is executed again afterwards, and ends the process as without it. */
void onBusError(int, siginfo_t *info, void *) {
  // Several threads may read the same file: one reports, and its fault ends the process for all.
  if (isReporting.test_and_set()) {
    for (;;) ::pause();
  }
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (const Entry *entry = info->si_code <= 0 ? nullptr : entryAt(address)) {
    say("\ntilewright: ");
    say(entry->path.c_str());
    say(" was cut off while it was read: byte ");
    sayNumber(address - entry->begin.load(std::memory_order_acquire));
    say(" is there no more, or its disk failed. Download the file again, then start again with --resume.\n");
  }
  ::sigaction(SIGBUS, &before, nullptr);
  // A signal that was sent is not raised again by an instruction.
  if (info->si_code <= 0) (void)::raise(SIGBUS);
}

void installHandler() {
  struct sigaction action {};
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  // Without the handler the process ends all the same, it only does not say why.
  (void)::sigaction(SIGBUS, &action, &before);
}

}  // namespace

MappedFile::MappedFile(const void *begin, size_t bytes, const std::string &path) {
  const std::lock_guard<std::mutex> lock(writers);
  static const bool isInstalled = (installHandler(), true);
  (void)isInstalled;
  Entry *free = entries.load();
  while (free != nullptr && free->end.load() != 0) free = free->next;
  entry_ = free != nullptr ? free : new Entry;
  entry_->path = path;
  entry_->begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
  entry_->end.store(reinterpret_cast<uintptr_t>(begin) + bytes, std::memory_order_release);
  if (free != nullptr) return;
  entry_->next = entries.load();
  entries.store(entry_, std::memory_order_release);
}

MappedFile::~MappedFile() {
  const std::lock_guard<std::mutex> lock(writers);
  entry_->end.store(0, std::memory_order_release);
}

}  // namespace tw
