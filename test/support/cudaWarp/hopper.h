#ifndef TW_HOPPER_H
#define TW_HOPPER_H
/*
 * What a Hopper contraction uses besides warp.h: barriers that count bytes, boxes copied by tensor maps, warpgroup
 * products of swizzled shared memory. Comes after the prelude, in place of the kernel's own definitions
 * (emulateHopper.ts). Copies land when somebody of the block waits for them, and not before; until then their places
 * hold NaN. Products are computed where they are issued: what a kernel reads before it waited for them is not caught.
 */
#include <map>
#include "warp.h"

struct tw_view {
  const unsigned char *base;
  long long rows, columns, stride;
  int boxRows, boxColumns, elementBytes, swizzle;
};
struct tw_box { unsigned to; tw_view view; long long column, row; };
/* `copies`: of threads that arrive when their copies land. */
struct tw_barrier {
  int count, pending;
  long long bytes;
  unsigned phase;
  std::vector<tw_box> boxes;
  std::vector<std::vector<tw_copy>> copies;
};
/* Of each block of the cluster. */
static std::map<unsigned, tw_barrier> tw_barriers[TW_MOST_BLOCKS];
static std::map<unsigned, tw_meeting> tw_named[TW_MOST_BLOCKS];

static tw_map tw_map_of(const tw_view &view) {
  tw_map map;
  static_assert(sizeof view <= sizeof map, "a view fits a map");
  memcpy(&map, &view, sizeof view);
  return map;
}
/* The 128-byte swizzle: bits 4 to 6 of an address are changed by bits 7 to 9. */
static unsigned tw_swizzled(unsigned at) { return at ^ ((at >> 3) & 0x70); }
template <class Element> static Element tw_element_at(unsigned at) {
  at = tw_swizzled(at);
  if (at + sizeof(Element) > TW_SHARED_BYTES) tw_fail("a product reads past shared memory");
  Element h;
  memcpy(&h, ::tw_shared + at, sizeof h);
  return h;
}
static uint16_t tw_half_at(unsigned at) { return tw_element_at<uint16_t>(at); }
static tw_barrier &tw_barrier_at(unsigned bar, unsigned rank = tw_rank) {
  const auto found = tw_barriers[rank].find(bar);
  if (found == tw_barriers[rank].end()) tw_fail("a barrier that nobody initialised");
  return found->second;
}
/* Of a block of the cluster, whose memory is there as long as one of its threads is. */
static unsigned char *tw_memory_of(unsigned rank) {
  if (rank >= tw_fibres.size() / tw_threads) tw_fail("a cluster has no such block");
  bool is_there = false;
  for (unsigned i = 0; i < tw_threads; i++) is_there |= !tw_fibres[rank * tw_threads + i].is_done;
  if (!is_there) tw_fail("the memory of a block that has ended");
  return tw_shared_of[rank];
}
static void tw_bar_settle(tw_barrier &b) {
  tw_progress++;
  if (b.pending < 0) tw_fail("more arrivals at a barrier than it counts");
  if (b.pending != 0 || b.bytes != 0) return;
  b.phase++;
  b.pending = b.count;
  tw_race_close(&b);
}
/* Uses a barrier: its words are only written where it is initialised, and by whoever overwrites it. */
static void tw_bar_use(unsigned bar, unsigned rank = tw_rank) { tw_race_read(tw_shared_of[rank] + bar, 8); }
static void tw_bar_init(unsigned bar, unsigned count) {
  tw_race_write(::tw_shared + bar, 8);
  tw_barriers[tw_rank][bar] = { (int)count, (int)count, 0, 0, {}, {} };
}
static void tw_bar_expect(unsigned bar, unsigned bytes) {
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  tw_race_release(&b);
  b.bytes += bytes;
  b.pending--;
  tw_bar_settle(b);
}
static void tw_bar_arrive_at(unsigned bar, unsigned rank) {
  tw_memory_of(rank);
  tw_barrier &b = tw_barrier_at(bar, rank);
  tw_bar_use(bar, rank);
  tw_race_release(&b);
  b.pending--;
  tw_bar_settle(b);
}
static void tw_bar_arrive(unsigned bar) { tw_bar_arrive_at(bar, tw_rank); }
static void tw_put(unsigned at, unsigned x, unsigned y, unsigned z, unsigned w) {
  const unsigned words[4] = { x, y, z, w };
  tw_race_write(::tw_shared + at, 16);
  if (at % 16 != 0 || at + 16 > TW_SHARED_BYTES) tw_fail("products are put down outside shared memory");
  memcpy(::tw_shared + at, words, 16);
}
static void tw_take(unsigned at, unsigned *to) {
  tw_race_read(::tw_shared + at, 16);
  memcpy(to, ::tw_shared + at, 16);
}
template <class Words> static void tw_store_words(void *to, const Words &x, int isStored) {
  if (!isStored) return;
  if ((uintptr_t)to % sizeof x != 0) tw_fail("words are stored where they are not aligned");
  memcpy(to, &x, sizeof x);
}
static void tw_put_pair(unsigned at, float x, float y) {
  const float pair[2] = { x, y };
  if (at % 8 != 0 || at + 8 > TW_SHARED_BYTES) tw_fail("products are put down outside shared memory");
  tw_race_write(::tw_shared + at, 8);
  memcpy(::tw_shared + at, pair, 8);
}
static int tw_peek(unsigned at) {
  int x;
  tw_race_read(::tw_shared + at, 4);
  memcpy(&x, ::tw_shared + at, 4);
  return x;
}
static void tw_poke(unsigned at, int x) {
  if (at % 4 != 0 || at + 4 > TW_SHARED_BYTES) tw_fail("a table lies outside shared memory");
  tw_race_write(::tw_shared + at, 4);
  memcpy(::tw_shared + at, &x, 4);
}
static void tw_take_eight(unsigned at, float *to) {
  if (at % 16 != 0) tw_fail("products are taken that are not aligned");
  tw_race_read(::tw_shared + at, 32);
  memcpy(to, ::tw_shared + at, 32);
}
static unsigned tw_box_bytes(const tw_view &view) {
  return (unsigned)(view.boxRows * view.boxColumns * view.elementBytes);
}
static void tw_box_land(const tw_box &box) {
  tw_race_landed(::tw_shared + box.to, tw_box_bytes(box.view));
  for (int r = 0; r < box.view.boxRows; r++) {
    for (int c = 0; c < box.view.boxColumns; c++) {
      const long long row = box.row + r, column = box.column + c;
      const int bytes = box.view.elementBytes;
      uint32_t h = 0;
      if (row >= 0 && row < box.view.rows && column >= 0 && column < box.view.columns)
        memcpy(&h, box.view.base + (row * box.view.stride + column) * bytes, bytes);
      const unsigned at = box.to + (unsigned)((r * box.view.boxColumns + c) * bytes);
      memcpy(::tw_shared + (box.view.swizzle == 0 ? at : tw_swizzled(at)), &h, bytes);
    }
  }
}
static void tw_bar_wait(unsigned bar, unsigned parity) {
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  for (;;) {
    std::vector<tw_box> boxes;
    boxes.swap(b.boxes);
    for (const tw_box &box : boxes) {
      tw_box_land(box);
      b.bytes -= tw_box_bytes(box.view);
    }
    if (!boxes.empty()) tw_bar_settle(b);
    std::vector<std::vector<tw_copy>> copies;
    copies.swap(b.copies);
    for (const auto &own : copies) {
      for (const tw_copy &copy : own) {
        memset(copy.to, 0, (size_t)copy.size);
        memcpy(copy.to, copy.from, (size_t)copy.bytes);
        tw_race_landed(copy.to, (size_t)copy.size);
      }
      b.pending--;
      tw_bar_settle(b);
    }
    if ((b.phase & 1) != parity) break;
    tw_yield();
  }
  tw_race_acquire(&b);
}
static void tw_load_box_all(unsigned to, const tw_map *map, int column, int row, unsigned bar, unsigned blocks) {
  tw_view view;
  memcpy(&view, map, sizeof view);
  const unsigned bytes = tw_box_bytes(view);
  if (to % (view.swizzle == 0 ? 128 : 1024) != 0 || to + bytes > TW_SHARED_BYTES)
    tw_fail("a box does not begin at a multiple of 1024 in shared memory");
  const int width = view.boxColumns * view.elementBytes;
  if ((view.swizzle == 0 ? width % 16 != 0 || view.boxColumns > 256 : width != view.swizzle || width != 128) ||
      (uintptr_t)view.base % 16 != 0 || view.stride * view.elementBytes % 16 != 0)
    tw_fail("a tensor map that a GPU refuses");
  for (unsigned rank = 0; blocks >> rank != 0; rank++) {
    if ((blocks >> rank & 1) == 0) continue;
    unsigned char *const memory = tw_memory_of(rank);
    memset(memory + to, 0xff, bytes);
    tw_bar_use(bar, rank);
    tw_race_copy(memory + to, bytes);
    tw_barrier &b = tw_barrier_at(bar, rank);
    tw_race_release(&b);
    b.boxes.push_back({ to, view, column, row });
  }
}
static void tw_load_box(unsigned to, const tw_map *map, int column, int row, unsigned bar) {
  tw_load_box_all(to, map, column, row, bar, 1u << tw_rank);
}
/* st.async: a value for another block of the cluster, whose bytes count at a barrier of that block. */
template <class Value> static void tw_send(unsigned at, unsigned rank, unsigned bar, const Value &value) {
  if (at % sizeof value != 0 || at + sizeof value > TW_SHARED_BYTES) tw_fail("a value is sent outside shared memory");
  unsigned char *const to = tw_memory_of(rank) + at;
  tw_race_write(to, sizeof value);
  memcpy(to, &value, sizeof value);
  tw_barrier &b = tw_barrier_at(bar, rank);
  tw_bar_use(bar, rank);
  tw_race_release(&b);
  b.bytes -= (long long)sizeof value;
  tw_bar_settle(b);
}
/* ld.shared::cluster: a value of another block of the cluster. */
template <class Value> static Value tw_fetch(unsigned at, unsigned rank) {
  if (at % sizeof(Value) != 0 || at + sizeof(Value) > TW_SHARED_BYTES) tw_fail("a value lies outside shared memory");
  const unsigned char *const from = tw_memory_of(rank) + at;
  tw_race_read(from, sizeof(Value));
  Value value;
  memcpy(&value, from, sizeof value);
  return value;
}
/* bar.sync and bar.arrive of two warpgroups. */
static void tw_named_arrive(unsigned id, unsigned count) {
  tw_meeting &m = tw_named[tw_rank][id];
  tw_progress++;
  tw_race_release(&m);
  if (++m.arrived < count) return;
  m.arrived = 0;
  m.generation++;
  tw_race_close(&m);
}
static void tw_named_sync(unsigned id, unsigned count) {
  tw_meeting &m = tw_named[tw_rank][id];
  const uint64_t generation = m.generation;
  tw_named_arrive(id, count);
  while (m.generation == generation) tw_yield();
  tw_race_acquire(&m);
}
/* One lane stands for its warp: all of it issues products, waits for them, and knows that they are done. */
static void tw_product_commit() { if (tw_current % 32 == 0) tw_race_commit(); }
static void tw_product_wait(unsigned groups_left) {
  if (tw_current % 32 == 0) tw_race_complete(groups_left);
  tw_warp("wgmma.wait_group", [](tw_fibre *) {}, true);
}
/*
 * Two K-major operands, 1024 bytes from one 8 rows to the next, as the descriptor says. Nobody uses what becomes of
 * rows of `a` from `ROWS` on, which may be read while they are written.
 */
template <int ROWS, int N, class Element>
static void tw_product(float (&d)[N], unsigned long long a, unsigned long long b, int isAdded,
                       float (*value)(Element)) {
  /* A step along k has 32 bytes. */
  constexpr unsigned size = sizeof(Element), depth = 32 / size;
  if ((a >> 32 & 0x3fff) != 64 || (a >> 62) != 1 || (b >> 32 & 0x3fff) != 64 || (b >> 62) != 1)
    tw_fail("a descriptor without 128-byte swizzle");
  const unsigned lane = tw_current % 32, warp = tw_current % tw_threads / 32 % 4;
  const unsigned at_a = (unsigned)(a & 0x3fff) << 4, at_b = (unsigned)(b & 0x3fff) << 4;
  const auto row = [](unsigned at, unsigned r, unsigned k) { return at + r / 8 * 1024 + r % 8 * 128 + size * k; };
  if (lane == 0) {
    const auto use = [row](unsigned at, unsigned r) {
      for (unsigned k = 0; k < depth; k += depth / 2) tw_race_operand(::tw_shared + tw_swizzled(row(at, r, k)), 16);
    };
    for (unsigned r = 16 * warp; r < 16 * warp + 16 && r < ROWS; r++) use(at_a, r);
    for (unsigned r = 0; r < 2 * N; r++) use(at_b, r);
  }
  float x[2][depth], y[depth];
  for (unsigned h = 0; h < 2; h++)
    for (unsigned k = 0; k < depth; k++)
      x[h][k] = value(tw_element_at<Element>(row(at_a, 16 * warp + lane / 4 + 8 * h, k)));
  for (unsigned j = 0; j < N / 4; j++) {
    for (unsigned e = 0; e < 2; e++) {
      for (unsigned k = 0; k < depth; k++) y[k] = value(tw_element_at<Element>(row(at_b, 8 * j + lane % 4 * 2 + e, k)));
      for (unsigned h = 0; h < 2; h++) {
        double sum = 0;
        for (unsigned k = 0; k < depth; k++) sum += (double)x[h][k] * y[k];
        float &to = d[4 * j + 2 * h + e];
        to = (float)((isAdded ? to : 0.0) + sum);
      }
    }
  }
  /* No lane runs ahead of its warp, and frees a stage that others still read. */
  tw_warp("wgmma", [](tw_fibre *) {});
}
static void tw_bar_arrive_for(unsigned bar, unsigned count) {
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  tw_race_release(&b);
  b.pending -= (int)count;
  tw_bar_settle(b);
}
/* Copies that are late land when somebody waits for the barrier. */
static void tw_bar_arrive_copied(unsigned bar) {
  if (!tw_late_copies) { tw_bar_arrive(bar); return; }
  std::vector<tw_copy> copies;
  for (auto &group : tw_fibres[tw_current].copies) {
    copies.insert(copies.end(), group.begin(), group.end());
    group.clear();
  }
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  tw_race_release(&b);
  b.copies.push_back(copies);
  tw_progress++;
}
/* Operand b lies in slabs of 64 columns, 8 rows in 1024 bytes; the descriptor's leading offset leads to the next. */
template <int N> static void tw_product_of_registers(float (&d)[N], const unsigned (&a)[4], unsigned long long b,
                                                    int isAdded, float (*value)(uint16_t)) {
  if ((b >> 32 & 0x3fff) != 64 || (b >> 62) != 1) tw_fail("a descriptor without 128-byte swizzle");
  const unsigned at = (unsigned)(b & 0x3fff) << 4, slab = (unsigned)(b >> 16 & 0x3fff) << 4, lane = tw_current % 32;
  const auto place = [at, slab](unsigned row, unsigned column) {
    return at + column / 64 * slab + row / 8 * 1024 + row % 8 * 128 + column % 64 * 2;
  };
  if (lane == 0)
    for (unsigned row = 0; row < 16; row++)
      for (unsigned column = 0; column < 2 * N; column += 8)
        tw_race_operand(::tw_shared + tw_swizzled(place(row, column)), 16);
  for (unsigned j = 0; j < N / 4; j++) {
    const unsigned column = 8 * j + lane / 4;
    unsigned pair[2];
    for (unsigned i = 0; i < 2; i++) {
      const unsigned row = lane % 4 * 2 + 8 * i;
      pair[i] = tw_half_at(place(row, column)) | (unsigned)tw_half_at(place(row + 1, column)) << 16;
    }
    float own[4];
    for (unsigned i = 0; i < 4; i++) own[i] = isAdded ? d[4 * j + i] : 0.0f;
    tw_mma(own, a, pair[0], pair[1], value);
    for (unsigned i = 0; i < 4; i++) d[4 * j + i] = own[i];
  }
}
/* Operand b K-major, as tw_product has it. */
template <int N> static void tw_product_of_registers_by_rows(float (&d)[N], const unsigned (&a)[4],
                                                            unsigned long long b, int isAdded,
                                                            float (*value)(uint16_t)) {
  if ((b >> 32 & 0x3fff) != 64 || (b >> 62) != 1) tw_fail("a descriptor without 128-byte swizzle");
  const unsigned at = (unsigned)(b & 0x3fff) << 4, lane = tw_current % 32;
  const auto place = [at](unsigned row, unsigned k) { return at + row / 8 * 1024 + row % 8 * 128 + 2 * k; };
  if (lane == 0)
    for (unsigned row = 0; row < 2 * N; row++)
      for (unsigned k = 0; k < 16; k += 8) tw_race_operand(::tw_shared + tw_swizzled(place(row, k)), 16);
  for (unsigned j = 0; j < N / 4; j++) {
    const unsigned row = 8 * j + lane / 4;
    unsigned pair[2];
    for (unsigned i = 0; i < 2; i++) {
      const unsigned k = lane % 4 * 2 + 8 * i;
      pair[i] = tw_half_at(place(row, k)) | (unsigned)tw_half_at(place(row, k + 1)) << 16;
    }
    float own[4];
    for (unsigned i = 0; i < 4; i++) own[i] = isAdded ? d[4 * j + i] : 0.0f;
    tw_mma(own, a, pair[0], pair[1], value);
    for (unsigned i = 0; i < 4; i++) d[4 * j + i] = own[i];
  }
}
#endif
