/*
 * Tensor cores by the warpgroup, sm_90a: PTX ISA, "wgmma". All threads of a warpgroup call these together. An
 * instruction takes operands from shared memory by descriptors, and 64 rows of accumulators from registers.
 */
#pragma once
#include "lib/elements.cuh"

namespace tw {

/* Rows of an instruction, bytes of k that it multiplies, and bytes of a row of a slab (the 128-byte swizzle). */
constexpr int WGMMA_ROWS = 64, WGMMA_STEP_BYTES = 32, SLAB_BYTES = 128;

/*
 * Descriptor of slabs of 128-byte rows under the 128-byte swizzle: 1,024 bytes from one group of 8 rows to the next
 * (bits 32 to 45, in units of 16 bytes), swizzle code 1 (bits 62 and 63), the address (bits 0 to 13). The upper word is
 * the same of all operands, so what moves is computed in 32 bits. PTX ISA, "matrix descriptor".
 */
constexpr unsigned DESCRIPTOR_UPPER = 1u << 30 | 1024u / 16u;
TW_DEVICE unsigned long long descriptor(unsigned lower) { return (unsigned long long)DESCRIPTOR_UPPER << 32 | lower; }
/* Lower word of a K-major operand at `at`: its rows are multiplied. The leading offset (bits 16 to 29) is not used. */
TW_DEVICE unsigned rows_at(unsigned at) { return 1u << 16 | (at & 0x3ffffu) >> 4; }
/* Of one whose columns are multiplied (transposed): `slab_bytes` from 64 columns to the next. */
TW_DEVICE unsigned columns_at(unsigned at, unsigned slab_bytes) {
  return slab_bytes / 16u << 16 | (at & 0x3ffffu) >> 4;
}
/* The whole descriptor of a K-major operand. */
TW_DEVICE unsigned long long rows_descriptor(unsigned at) {
  return (unsigned long long)DESCRIPTOR_UPPER << 32 | 1ull << 16 | (unsigned long long)(at & 0x3ffffu) >> 4;
}

/* Products from here on read registers that were written before; the end of a group of products. */
TW_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TW_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most `groups` groups are under way. */
template <int groups> TW_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(groups) : "memory");
}

/*
 * The instructions, by the type and the columns of their operands: those that some kernel has, because every kernel's
 * unit is compiled with all that stand here.
 */
template <class T, int columns> struct Wgmma;
template <class T, int columns> struct WgmmaOfRegisters;
template <class T, int columns> struct WgmmaOfRegistersByRows;

/* Operand lists of the accumulators of 8·g columns: their names in the instruction, and their registers. */
#define TW_NAMES_1 "%0, %1, %2, %3"
#define TW_NAMES_2 TW_NAMES_1 ", %4, %5, %6, %7"
#define TW_NAMES_3 TW_NAMES_2 ", %8, %9, %10, %11"
#define TW_NAMES_4 TW_NAMES_3 ", %12, %13, %14, %15"
#define TW_NAMES_5 TW_NAMES_4 ", %16, %17, %18, %19"
#define TW_NAMES_6 TW_NAMES_5 ", %20, %21, %22, %23"
#define TW_NAMES_7 TW_NAMES_6 ", %24, %25, %26, %27"
#define TW_NAMES_8 TW_NAMES_7 ", %28, %29, %30, %31"
#define TW_NAMES_9 TW_NAMES_8 ", %32, %33, %34, %35"
#define TW_NAMES_10 TW_NAMES_9 ", %36, %37, %38, %39"
#define TW_NAMES_11 TW_NAMES_10 ", %40, %41, %42, %43"
#define TW_NAMES_12 TW_NAMES_11 ", %44, %45, %46, %47"
#define TW_NAMES_13 TW_NAMES_12 ", %48, %49, %50, %51"
#define TW_NAMES_14 TW_NAMES_13 ", %52, %53, %54, %55"
#define TW_NAMES_15 TW_NAMES_14 ", %56, %57, %58, %59"
#define TW_NAMES_16 TW_NAMES_15 ", %60, %61, %62, %63"
#define TW_NAMES_17 TW_NAMES_16 ", %64, %65, %66, %67"
#define TW_NAMES_18 TW_NAMES_17 ", %68, %69, %70, %71"
#define TW_NAMES_19 TW_NAMES_18 ", %72, %73, %74, %75"
#define TW_NAMES_20 TW_NAMES_19 ", %76, %77, %78, %79"
#define TW_NAMES_21 TW_NAMES_20 ", %80, %81, %82, %83"
#define TW_NAMES_22 TW_NAMES_21 ", %84, %85, %86, %87"
#define TW_NAMES_23 TW_NAMES_22 ", %88, %89, %90, %91"
#define TW_NAMES_24 TW_NAMES_23 ", %92, %93, %94, %95"
#define TW_NAMES_25 TW_NAMES_24 ", %96, %97, %98, %99"
#define TW_NAMES_26 TW_NAMES_25 ", %100, %101, %102, %103"
#define TW_NAMES_27 TW_NAMES_26 ", %104, %105, %106, %107"
#define TW_NAMES_28 TW_NAMES_27 ", %108, %109, %110, %111"
#define TW_NAMES_29 TW_NAMES_28 ", %112, %113, %114, %115"
#define TW_NAMES_30 TW_NAMES_29 ", %116, %117, %118, %119"
#define TW_NAMES_31 TW_NAMES_30 ", %120, %121, %122, %123"
#define TW_NAMES_32 TW_NAMES_31 ", %124, %125, %126, %127"
#define TW_ACCUMULATORS_1 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define TW_ACCUMULATORS_2 TW_ACCUMULATORS_1, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define TW_ACCUMULATORS_3 TW_ACCUMULATORS_2, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define TW_ACCUMULATORS_4 TW_ACCUMULATORS_3, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define TW_ACCUMULATORS_5 TW_ACCUMULATORS_4, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define TW_ACCUMULATORS_6 TW_ACCUMULATORS_5, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define TW_ACCUMULATORS_7 TW_ACCUMULATORS_6, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define TW_ACCUMULATORS_8 TW_ACCUMULATORS_7, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define TW_ACCUMULATORS_9 TW_ACCUMULATORS_8, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define TW_ACCUMULATORS_10 TW_ACCUMULATORS_9, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define TW_ACCUMULATORS_11 TW_ACCUMULATORS_10, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define TW_ACCUMULATORS_12 TW_ACCUMULATORS_11, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define TW_ACCUMULATORS_13 TW_ACCUMULATORS_12, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define TW_ACCUMULATORS_14 TW_ACCUMULATORS_13, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define TW_ACCUMULATORS_15 TW_ACCUMULATORS_14, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define TW_ACCUMULATORS_16 TW_ACCUMULATORS_15, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define TW_ACCUMULATORS_17 TW_ACCUMULATORS_16, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define TW_ACCUMULATORS_18 TW_ACCUMULATORS_17, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define TW_ACCUMULATORS_19 TW_ACCUMULATORS_18, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define TW_ACCUMULATORS_20 TW_ACCUMULATORS_19, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define TW_ACCUMULATORS_21 TW_ACCUMULATORS_20, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define TW_ACCUMULATORS_22 TW_ACCUMULATORS_21, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define TW_ACCUMULATORS_23 TW_ACCUMULATORS_22, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define TW_ACCUMULATORS_24 TW_ACCUMULATORS_23, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define TW_ACCUMULATORS_25 TW_ACCUMULATORS_24, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define TW_ACCUMULATORS_26 TW_ACCUMULATORS_25, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define TW_ACCUMULATORS_27 TW_ACCUMULATORS_26, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define TW_ACCUMULATORS_28 TW_ACCUMULATORS_27, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define TW_ACCUMULATORS_29 TW_ACCUMULATORS_28, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define TW_ACCUMULATORS_30 TW_ACCUMULATORS_29, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define TW_ACCUMULATORS_31 TW_ACCUMULATORS_30, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define TW_ACCUMULATORS_32 TW_ACCUMULATORS_31, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

/* One instruction; `a`, `b`, `p` and `a3` are the numbers of the operands behind the accumulators. */
#define TW_WGMMA_OF(T, type, depth, ending, columns, g, a, b, p)                                                       \
  template <> struct Wgmma<T, columns> {                                                                               \
    static TW_DEVICE void multiply(float (&d)[columns / 2], unsigned long long x, unsigned long long y,                \
        int is_added) {                                                                                                \
      asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\n"                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k" #depth ".f32." #type "." #type " "                 \
                   "{ " TW_NAMES_##g " }, %" #a ", %" #b ", p, 1, 1" ending "; }"                                      \
                   : TW_ACCUMULATORS_##g : "l"(x), "l"(y), "r"(is_added));                                             \
    }                                                                                                                  \
  };
#define TW_WGMMA_OF_REGISTERS(name, transposed, T, type, columns, g, a, b, c, e, f, p)                                 \
  template <> struct name<T, columns> {                                                                                \
    static TW_DEVICE void multiply(float (&d)[columns / 2], const unsigned (&x)[4], unsigned long long y,              \
        int is_added) {                                                                                                \
      asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\n"                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." #type "." #type " "                         \
                   "{ " TW_NAMES_##g " }, { %" #a ", %" #b ", %" #c ", %" #e " }, %" #f ", p, 1, 1, "                  \
                   #transposed "; }"                                                                                   \
                   : TW_ACCUMULATORS_##g : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y), "r"(is_added));         \
    }                                                                                                                  \
  };
#define TW_WGMMA(columns, g, a, b, p)                                                                                  \
  TW_WGMMA_OF(bf16, bf16, 16, ", 0, 0", columns, g, a, b, p)                                                           \
  TW_WGMMA_OF(f16, f16, 16, ", 0, 0", columns, g, a, b, p)                                                             \
  TW_WGMMA_OF(e4m3, e4m3, 32, "", columns, g, a, b, p)
TW_WGMMA(8, 1, 4, 5, 6)
TW_WGMMA(16, 2, 8, 9, 10)
TW_WGMMA(24, 3, 12, 13, 14)
TW_WGMMA(32, 4, 16, 17, 18)
TW_WGMMA(40, 5, 20, 21, 22)
TW_WGMMA(48, 6, 24, 25, 26)
TW_WGMMA(56, 7, 28, 29, 30)
TW_WGMMA(64, 8, 32, 33, 34)
TW_WGMMA(72, 9, 36, 37, 38)
TW_WGMMA(80, 10, 40, 41, 42)
TW_WGMMA(88, 11, 44, 45, 46)
TW_WGMMA(96, 12, 48, 49, 50)
TW_WGMMA(104, 13, 52, 53, 54)
TW_WGMMA(112, 14, 56, 57, 58)
TW_WGMMA(120, 15, 60, 61, 62)
TW_WGMMA(128, 16, 64, 65, 66)
TW_WGMMA(144, 18, 72, 73, 74)
TW_WGMMA(160, 20, 80, 81, 82)
TW_WGMMA(176, 22, 88, 89, 90)
TW_WGMMA(192, 24, 96, 97, 98)
TW_WGMMA(208, 26, 104, 105, 106)
TW_WGMMA(224, 28, 112, 113, 114)
TW_WGMMA(240, 30, 120, 121, 122)
TW_WGMMA(256, 32, 128, 129, 130)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegisters, 1, bf16, bf16, 64, 8, 32, 33, 34, 35, 36, 37)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegisters, 1, bf16, bf16, 128, 16, 64, 65, 66, 67, 68, 69)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegistersByRows, 0, bf16, bf16, 8, 1, 4, 5, 6, 7, 8, 9)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegistersByRows, 0, bf16, bf16, 16, 2, 8, 9, 10, 11, 12, 13)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegistersByRows, 0, bf16, bf16, 32, 4, 16, 17, 18, 19, 20, 21)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegistersByRows, 0, bf16, bf16, 64, 8, 32, 33, 34, 35, 36, 37)
TW_WGMMA_OF_REGISTERS(WgmmaOfRegistersByRows, 0, bf16, bf16, 128, 16, 64, 65, 66, 67, 68, 69)

/*
 * d[64 × columns] (+)= a[64 × k]·b[columns × k]ᵀ: `a` and `b` are descriptors of K-major operands of T, k of 32 bytes.
 * is_added 0 starts from zero. A thread has columns / 2 accumulators: of row lane / 4 (+ 8) of its warp's 16, columns
 * 2·(lane % 4) and the next of every eight. used_rows: of `a`, the rows that the kernel reads the products of.
 */
template <class T, int columns, int used_rows = WGMMA_ROWS>
TW_DEVICE void wgmma(float (&d)[columns / 2], unsigned long long a, unsigned long long b, int is_added) {
  static_assert(columns % (columns > 128 ? 16 : 8) == 0 && columns <= 256, "no kernel has this instruction yet");
  Wgmma<T, columns>::multiply(d, a, b, is_added);
}
/* The same with a[64 × 16] in registers and b[16 × columns] transposed: 16-bit operands. */
template <class T, int columns>
TW_DEVICE void wgmma_of_registers(float (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b, int is_added) {
  static_assert(columns == 64 || columns == 128, "no kernel has this instruction yet");
  WgmmaOfRegisters<T, columns>::multiply(d, a, b, is_added);
}
/* The same with b K-major: b[columns × 16] as wgmma has it. */
template <class T, int columns>
TW_DEVICE void wgmma_of_registers_by_rows(float (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b,
    int is_added) {
  static_assert(columns == 8 || columns == 16 || columns == 32 || columns == 64 || columns == 128,
      "no kernel has this instruction yet");
  WgmmaOfRegistersByRows<T, columns>::multiply(d, a, b, is_added);
}

}  // namespace tw
