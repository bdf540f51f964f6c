#ifndef TW_RACES_H
#define TW_RACES_H
/*
 * What a search for races in shared memory is told: which accesses there are, and what orders them. The compiler tells
 * the accesses of a kernel's own text (-fsanitize=thread, without that tool's library), the emulator all others.
 * Without TW_RACES nothing is searched.
 *
 * `object` is whatever threads meet at: a release adds what the thread has done to what is gathered there, `close`
 * hands it to those who wait, and they acquire it. Everything is done by the thread `tw_race_thread`.
 */
#ifdef TW_RACES
extern "C" {
extern unsigned tw_race_thread;
/* A new cluster of this many threads begins, and nothing is known of its memory. `statics` is that of `__shared__`. */
void tw_race_begin(unsigned threads, unsigned char *memory, size_t bytes, unsigned char *statics, size_t statics_bytes);
void tw_race_release(const void *object);
void tw_race_close(const void *object);
void tw_race_acquire(const void *object);
void tw_race_read(const void *at, size_t bytes);
void tw_race_write(const void *at, size_t bytes);
/* Until a copy has landed its place is nobody's, and once it has the write is its issuer's. */
void tw_race_copy(const void *to, size_t bytes);
void tw_race_landed(const void *to, size_t bytes);
/* Operands of an asynchronous product are read until its group is complete. */
void tw_race_operand(const void *at, size_t bytes);
void tw_race_commit();
void tw_race_complete(unsigned groups_left);
extern unsigned char __start_tw_statics[] __attribute__((weak)), __stop_tw_statics[] __attribute__((weak));
}
#define TW_SHARED_STATIC static __attribute__((section("tw_statics")))
static void tw_race_cluster(unsigned threads, unsigned char *memory, size_t bytes) {
  tw_race_begin(threads, memory, bytes, __start_tw_statics, (size_t)(__stop_tw_statics - __start_tw_statics));
}
#else
static unsigned tw_race_thread;
static inline void tw_race_cluster(unsigned, unsigned char *, size_t) {}
static inline void tw_race_release(const void *) {}
static inline void tw_race_close(const void *) {}
static inline void tw_race_acquire(const void *) {}
static inline void tw_race_read(const void *, size_t) {}
static inline void tw_race_write(const void *, size_t) {}
static inline void tw_race_copy(const void *, size_t) {}
static inline void tw_race_landed(const void *, size_t) {}
static inline void tw_race_operand(const void *, size_t) {}
static inline void tw_race_commit() {}
static inline void tw_race_complete(unsigned) {}
#define TW_SHARED_STATIC static
#endif
#endif
