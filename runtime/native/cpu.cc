#include "cpu.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "support.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tw {
namespace {

std::vector<int> allowedCpus() {
  // A fixed cpu_set_t holds 1,024 processors; a larger machine makes the call fail and is asked again.
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 4) {
    cpu_set_t *set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    std::vector<int> cpus;
    if (::sched_getaffinity(0, bytes, set) == 0) {
      for (int i = 0; i < capacity; i++) {
        if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) cpus.push_back(i);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

/** Processors' worth of time that the control group (version 2) grants; `cpus` where there is no limit. */
int quotaCores(int cpus) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return cpus;  // "max 100000" is not a number
  const int cores = static_cast<int>((quota + period - 1) / period);
  return std::clamp(cores, 1, cpus);
}

#if defined(__x86_64__)

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

bool query(uint32_t leaf, uint32_t subleaf, Registers &r) {
  return __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) != 0;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

/** The register state that the operating system saves (XCR0). */
uint64_t savedState() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool requestTiles() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023;
  constexpr long XFEATURE_XTILEDATA = 18;
  return ::syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

void readFeatures(CpuInfo &info) {
  Registers one, seven, sevenOne;
  if (!query(1, 0, one) || !query(7, 0, seven)) return;
  if (!bit(one.c, 27)) return;  // OSXSAVE: xgetbv exists
  const uint64_t saved = savedState();
  const bool savesYmm = (saved & 0x6) == 0x6;
  const bool savesZmm = (saved & 0xe6) == 0xe6;
  const bool savesTiles = (saved & 0x60000) == 0x60000;
  info.hasAvx2 = savesYmm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);
  info.hasAvx512 =
      info.hasAvx2 && savesZmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);
  const bool hasBf16 = query(7, 1, sevenOne) && bit(sevenOne.a, 5);
  info.hasAmx = info.hasAvx512 && hasBf16 && savesTiles && bit(seven.d, 24) && bit(seven.d, 22) &&
                bit(seven.d, 25) && requestTiles();
}

void readNames(CpuInfo &info) {
  Registers r;
  if (query(0, 0, r)) {
    char vendor[13] = {};
    std::memcpy(vendor, &r.b, 4);
    std::memcpy(vendor + 4, &r.d, 4);
    std::memcpy(vendor + 8, &r.c, 4);
    info.vendor = vendor;
  }
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; i++) {
    if (!query(0x80000002u + i, 0, r)) return;
    std::memcpy(brand + 16 * i, &r, 16);
  }
  info.model = brand;
  info.model.erase(0, info.model.find_first_not_of(' ') == std::string::npos ? 0 : info.model.find_first_not_of(' '));
  while (!info.model.empty() && info.model.back() == ' ') info.model.pop_back();
}

void readCaches(CpuInfo &info) {
  const uint32_t leaf = info.vendor == "AuthenticAMD" || info.vendor == "HygonGenuine" ? 0x8000001du : 4u;
  for (uint32_t i = 0; i < 16; i++) {
    Registers r;
    if (!query(leaf, i, r)) return;
    const uint32_t type = r.a & 31;  // 1 data, 2 instructions, 3 both
    if (type == 0) return;
    if (type == 2) continue;
    const size_t bytes = (size_t{(r.b >> 22) & 0x3ff} + 1) * (size_t{(r.b >> 12) & 0x3ff} + 1) *
                         (size_t{r.b & 0xfff} + 1) * (size_t{r.c} + 1);
    switch ((r.a >> 5) & 7) {
      case 1: info.l1dBytes = bytes; break;
      case 2: info.l2Bytes = bytes; break;
      case 3: info.l3Bytes = bytes; break;
      default: break;
    }
  }
}

#else
void readFeatures(CpuInfo &) {}
void readNames(CpuInfo &info) { info.vendor = "unknown"; }
void readCaches(CpuInfo &) {}
#endif

/** What the C library knows, where the processor does not list its caches: virtual machines hide that list. */
void askForCaches(CpuInfo &info) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  const auto ask = [](size_t &bytes, int name) {
    const long known = bytes == 0 ? sysconf(name) : 0;
    if (known > 0) bytes = static_cast<size_t>(known);
  };
  ask(info.l1dBytes, _SC_LEVEL1_DCACHE_SIZE);
  ask(info.l2Bytes, _SC_LEVEL2_CACHE_SIZE);
#endif
}

CpuInfo read() {
  CpuInfo info;
  info.cpus = allowedCpus();
  info.cores = quotaCores(static_cast<int>(info.cpus.size()));
  readNames(info);
  readFeatures(info);
  readCaches(info);
  askForCaches(info);
  return info;
}

}  // namespace

const CpuInfo &cpu() {
  static const CpuInfo info = read();
  return info;
}

Napi::Value cpuInfo(const Napi::CallbackInfo &info) {
  const Napi::Env env = info.Env();
  const CpuInfo &facts = cpu();
  Napi::Object isas = Napi::Object::New(env);
  isas.Set("avx2", facts.hasAvx2);
  isas.Set("avx512", facts.hasAvx512);
  isas.Set("amx", facts.hasAmx);
  Napi::Object result = Napi::Object::New(env);
  result.Set("vendor", facts.vendor);
  result.Set("model", facts.model);
  result.Set("cores", facts.cores);
  result.Set("isas", isas);
  result.Set("l1dBytes", static_cast<double>(facts.l1dBytes));
  result.Set("l2Bytes", static_cast<double>(facts.l2Bytes));
  result.Set("l3Bytes", static_cast<double>(facts.l3Bytes));
  return result;
}

}  // namespace tw
