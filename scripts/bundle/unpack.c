// unpack IN OUT BYTES: decodes an .lzma file of BYTES bytes into an executable OUT, which appears whole or not at all.
// The bundle carries its Node this way, because gzip alone does not fit it in; a host need not have xz.
// The format: the LZMA specification of the LZMA SDK (public domain), here with an output that is its own dictionary.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef uint16_t Prob;
enum { HALF = 1024, POSITIONS = 16, STATES = 12, HEADER = 13 };

// The file that is being written; a failure removes it.
static char temporary[4096];

static void fail(const char *what, const char *about) {
  fprintf(stderr, "unpack: %s%s%s\n", what, *about ? ": " : "", about);
  if (*temporary) unlink(temporary);
  exit(1);
}

// Range decoder. Reading past the end gives zeros; the missing end marker is noticed.
static const uint8_t *in, *inEnd;
static uint32_t range, code;

static void normalise(void) {
  if (range >> 24) return;
  range <<= 8;
  code = code << 8 | (in < inEnd ? *in++ : 0);
}

static unsigned bit(Prob *p) {
  uint32_t bound = (range >> 11) * *p;
  unsigned value = code >= bound;
  if (value) {
    code -= bound, range -= bound;
    *p = (Prob)(*p - (*p >> 5));
  } else {
    range = bound;
    *p = (Prob)(*p + ((2048 - *p) >> 5));
  }
  normalise();
  return value;
}

static unsigned directBits(int count) {
  unsigned value = 0;
  while (count-- > 0) {
    range >>= 1;
    unsigned one = code >= range;
    if (one) code -= range;
    value = value << 1 | one;
    normalise();
  }
  return value;
}

static unsigned tree(Prob *p, int bits) {
  unsigned m = 1;
  for (int i = 0; i < bits; i++) m = m << 1 | bit(p + m);
  return m - (1u << bits);
}

static unsigned reverseTree(Prob *p, int bits) {
  unsigned m = 1, value = 0;
  for (int i = 0; i < bits; i++) {
    unsigned one = bit(p + m);
    m = m << 1 | one;
    value |= one << i;
  }
  return value;
}

struct lengths { Prob isLong, isVeryLong, low[POSITIONS][8], middle[POSITIONS][8], high[256]; };

static struct {
  Prob isMatch[STATES][POSITIONS], isRepeat[STATES], isOlder[STATES], isSecond[STATES], isThird[STATES],
      isLongRepeat[STATES][POSITIONS];
  Prob slot[4][64], position[128], align[16];
  struct lengths fresh, repeated;
  Prob literal[0x300 << 4];
} model;

static unsigned length(struct lengths *l, unsigned position) {
  if (!bit(&l->isLong)) return 2 + tree(l->low[position], 3);
  if (!bit(&l->isVeryLong)) return 10 + tree(l->middle[position], 3);
  return 18 + tree(l->high, 8);
}

// How far back a match of that length lies, less one; all ones ends the file.
static uint32_t distance(unsigned length) {
  unsigned slot = tree(model.slot[length < 6 ? length - 2 : 3], 6);
  if (slot < 4) return slot;
  int bits = (int)(slot >> 1) - 1;
  uint32_t base = (2u | (slot & 1)) << bits;
  if (slot < 14) return base + reverseTree(model.position + (base - slot), bits);
  base += directBits(bits - 4) << 4;
  return base + reverseTree(model.align, 4);
}

// Decodes into out[0, bytes); exactly that many bytes and then the end marker, or it fails.
static void decode(uint8_t *out, uint64_t bytes, unsigned lc, unsigned lp, unsigned pb) {
  unsigned state = 0;
  uint32_t rep[4] = {0, 0, 0, 0};
  uint64_t at = 0;
  for (;;) {
    unsigned position = (unsigned)at & ((1u << pb) - 1);
    if (!bit(&model.isMatch[state][position])) {
      if (at == bytes) fail("the file is longer than it should be", "");
      unsigned before = at ? out[at - 1] : 0;
      Prob *p = model.literal + 0x300 * ((((unsigned)at & ((1u << lp) - 1)) << lc) + (before >> (8 - lc)));
      unsigned symbol = 1;
      if (state >= 7) {
        for (unsigned expected = out[at - rep[0] - 1]; symbol < 0x100; expected <<= 1) {
          unsigned want = expected >> 7 & 1, got = bit(p + ((1 + want) << 8) + symbol);
          symbol = symbol << 1 | got;
          if (want != got) break;
        }
      }
      while (symbol < 0x100) symbol = symbol << 1 | bit(p + symbol);
      out[at++] = (uint8_t)symbol;
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    unsigned count;
    if (bit(&model.isRepeat[state])) {
      if (!bit(&model.isOlder[state])) {
        if (!bit(&model.isLongRepeat[state][position])) {
          if (at == bytes || rep[0] >= at) fail("the file is damaged", "");
          out[at] = out[at - rep[0] - 1];
          at++;
          state = state < 7 ? 9 : 11;
          continue;
        }
      } else {
        int which = !bit(&model.isSecond[state]) ? 1 : !bit(&model.isThird[state]) ? 2 : 3;
        uint32_t chosen = rep[which];
        for (; which > 0; which--) rep[which] = rep[which - 1];
        rep[0] = chosen;
      }
      count = length(&model.repeated, position);
      state = state < 7 ? 8 : 11;
    } else {
      count = length(&model.fresh, position);
      memmove(rep + 1, rep, 3 * sizeof rep[0]);
      rep[0] = distance(count);
      if (rep[0] == UINT32_MAX) break;
      state = state < 7 ? 7 : 10;
    }
    if (rep[0] >= at || count > bytes - at) fail("the file is damaged", "");
    for (const uint8_t *from = out + at - rep[0] - 1; count > 0; count--) out[at++] = *from++;
  }
  if (at != bytes || code != 0) fail("the file is shorter than it should be", "");
}

int main(int argc, char **argv) {
  if (argc != 4) fail("usage: unpack IN OUT BYTES", "");
  uint64_t bytes = strtoull(argv[3], NULL, 10);
  if (bytes == 0 || bytes > 1ull << 30) fail("bad size", argv[3]);
  int input = open(argv[1], O_RDONLY);
  struct stat status;
  if (input < 0 || fstat(input, &status) != 0) fail("cannot be read", argv[1]);
  if (status.st_size < HEADER + 5) fail("the file is cut off", argv[1]);
  in = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, input, 0);
  if (in == MAP_FAILED) fail("cannot be mapped", argv[1]);
  inEnd = in + status.st_size;
  unsigned properties = in[0], lc = properties % 9, lp = properties / 9 % 5, pb = properties / 45;
  if (pb > 4 || lc + lp > 4 || in[HEADER] != 0) fail("is no .lzma file", argv[1]);
  in += HEADER + 1;
  range = UINT32_MAX;
  for (int i = 0; i < 4; i++) code = code << 8 | *in++;
  Prob *probs = (Prob *)&model;
  for (size_t i = 0; i < sizeof model / sizeof *probs; i++) probs[i] = HALF;

  char name[sizeof temporary];
  if (snprintf(name, sizeof name, "%s.%ld", argv[2], (long)getpid()) >= (int)sizeof name)
    fail("the path is too long", argv[2]);
  int output = open(name, O_CREAT | O_EXCL | O_RDWR, 0755);
  if (output < 0) fail("cannot be written; unpack the bundle into a folder of yours", name);
  strcpy(temporary, name);
  // Space is taken now: a full disk is an error here, not a fault later.
  uint8_t *out = posix_fallocate(output, 0, (off_t)bytes) == 0
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, output, 0)
                     : MAP_FAILED;
  if (out == MAP_FAILED) fail("no space for", argv[2]);
  decode(out, bytes, lc, lp, pb);
  if (munmap(out, bytes) != 0 || fsync(output) != 0 || close(output) != 0 || rename(temporary, argv[2]) != 0)
    fail("cannot be finished", argv[2]);
  return 0;
}
