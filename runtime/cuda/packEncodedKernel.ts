/** Device code that decodes elements of encoded matrices (ir/encoding.ts) from the bytes of their files. */

/** Types of codes and of scales, by the number that a job gives them. */
export const CODE_NUMBERS = { u2: 0, u4: 1, u8: 2, i8: 3, e4m3: 4, e5m2: 5 } as const;
export const SCALE_NUMBERS = { f32: 0, f16: 1, bf16: 2, e8m0: 3 } as const;
/** Blocks of ggml; 0: codes with scales. */
export const BLOCK_NUMBERS = { q8_0: 1, q4_0: 2, q4_k: 3, q5_k: 4, q6_k: 5 } as const;
/** What is read of a matrix. */
export const READ_NUMBERS = { values: 0, codes: 1, scales: 2, 'row scales': 3 } as const;

/** Comes before tw_value of packKernels.ts. The arithmetic is that of runtime/native/encoded.cc. */
export const PACK_ENCODED_SOURCE = String.raw`
/** Codes of [rows, columns], several in a word. Strides count words. */
struct tw_grid {
  long long at;                // bytes from the staged ones to where row 0 of the whole matrix would be
  int type;
  int bits;
  int wordBytes;
  int inWord;
  int isAlongRow;              // neighbours of a word lie in a row, or in a column
  int rowStride;
  int columnStride;
  int unused;
  unsigned char shifts[32];    // bits below each of the neighbours
};

/** A matrix, of which a range is staged; behind the job of its range. */
struct tw_encoded {
  tw_grid codes;
  tw_grid zeros;
  long long scalesAt;
  int scaleType;
  int blockRows;               // of a scale
  int blockColumns;
  int scaleRowStride;
  int scaleColumnStride;
  int hasZeros;
  int zero;                    // added to a stored zero point modulo its range; or the zero point of all codes
  int block;                   // 0: codes with scales; ggml's blocks, which lie at codes.at, rowStride bytes a row
  int row;                     // of the matrix: the first of the range
  int reads;                   // 0 values, 1 codes, 2 words of scales and zero points, 3 scales of rows
  int group;                   // columns of such a word
  int isDamaged;               // set where a scale is none
};

static __device__ __forceinline__ tw_encoded *tw_encoded_of(const void *jobs) {
  return (tw_encoded *)((char *)jobs + sizeof(tw_pack_job));
}

static __device__ __forceinline__ unsigned tw_code_at(const tw_grid &grid, const char *source, int row, int column) {
  const int along = grid.isAlongRow != 0 ? column : row;
  const long long wordRow = grid.isAlongRow != 0 ? row : row / grid.inWord;
  const long long wordColumn = grid.isAlongRow != 0 ? column / grid.inWord : column;
  const long long index = wordRow * grid.rowStride + wordColumn * grid.columnStride;
  const unsigned word = grid.wordBytes == 1 ? ((const unsigned char *)(source + grid.at))[index]
                                            : ((const unsigned *)(source + grid.at))[index];
  return word >> grid.shifts[along % grid.inWord] & ((1u << grid.bits) - 1u);
}

static __device__ __forceinline__ float tw_number_of(unsigned code, int type) {
  const unsigned sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
  if (type == 5) return tw_from_f16(code << 8);
  if (type != 4) return (float)(type == 3 ? (int)(signed char)code : (int)code);
  if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
  if (magnitude < 8u) return __uint_as_float(sign | __float_as_uint(tw_product((float)(int)magnitude, 0.001953125f)));
  return __uint_as_float(sign | ((magnitude << 20) + 0x3c000000u));
}

/** Whether it is finite and not zero. */
static __device__ __forceinline__ bool tw_is_scale(float value) {
  const unsigned bits = __float_as_uint(value);
  return (bits & 0x7f800000u) != 0x7f800000u && (bits & 0x7fffffffu) != 0;
}

/** The scale and the zero point of an element. */
static __device__ __forceinline__ void tw_affine(tw_encoded *matrix, const char *source, int row, int column,
                                                 float *scale, int *zero) {
  const int down = row / matrix->blockRows, across = column / matrix->blockColumns;
  const long long index = (long long)down * matrix->scaleRowStride + (long long)across * matrix->scaleColumnStride;
  const char *scales = source + matrix->scalesAt;
  const int type = matrix->scaleType;
  if (type == 0) *scale = ((const float *)scales)[index];
  else if (type == 1) *scale = tw_from_f16(((const unsigned short *)scales)[index]);
  else if (type == 2) *scale = __uint_as_float((unsigned)((const unsigned short *)scales)[index] << 16);
  else {
    const unsigned code = ((const unsigned char *)scales)[index];
    *scale = __uint_as_float(code == 255u ? 0x7fc00000u : code == 0 ? 0x00400000u : code << 23);
  }
  if (!tw_is_scale(*scale)) matrix->isDamaged = 1;
  *zero = matrix->zero;
  if (matrix->hasZeros == 0) return;
  const unsigned code = tw_code_at(matrix->zeros, source, down, across) + (unsigned)matrix->zero;
  const unsigned own = code & ((1u << matrix->zeros.bits) - 1u);
  *zero = matrix->zeros.type == 3 ? (int)(signed char)own : (int)own;
}

static __device__ __forceinline__ float tw_half_at(tw_encoded *matrix, const unsigned char *at) {
  const unsigned half = at[0] | (unsigned)at[1] << 8;
  if ((half & 0x7c00u) == 0x7c00u) matrix->isDamaged = 1;
  return tw_from_f16(half);
}

/** An element of a block of ggml. */
static __device__ __forceinline__ float tw_block_value(tw_encoded *matrix, const char *source, int row, int column) {
  const unsigned char *rows =
      (const unsigned char *)source + matrix->codes.at + (long long)row * matrix->codes.rowStride;
  if (matrix->block <= 2) {
    const int i = column % 32;
    const unsigned char *block = rows + (long long)(column / 32) * (matrix->block == 1 ? 34 : 18);
    const float d = tw_half_at(matrix, block);
    if (matrix->block == 1) return tw_product(d, (float)(int)(signed char)block[2 + i]);
    return tw_product(d, (float)((block[2 + i % 16] >> (i < 16 ? 0 : 4) & 15) - 8));
  }
  const int unit = column % 256 / 32, i = column % 32;
  if (matrix->block == 5) {
    const unsigned char *block = rows + (long long)(column / 256) * 210;
    const int half = unit / 4, quarter = unit % 4;
    const int low = block[64 * half + 32 * (quarter & 1) + i] >> (quarter < 2 ? 0 : 4) & 15;
    const int high = block[128 + 32 * half + i] >> 2 * quarter & 3;
    const float scale = (float)(int)(signed char)block[192 + 2 * unit + i / 16];
    return tw_product(tw_product(tw_half_at(matrix, block + 208), scale), (float)((low | high << 4) - 32));
  }
  const bool isFive = matrix->block == 4;
  const unsigned char *block = rows + (long long)(column / 256) * (isFive ? 176 : 144);
  const unsigned char *s = block + 4;
  const int scale = unit < 4 ? s[unit] & 63 : (s[unit + 4] & 15) | s[unit - 4] >> 6 << 4;
  const int minimum = unit < 4 ? s[unit + 4] & 63 : s[unit + 4] >> 4 | s[unit] >> 6 << 4;
  const int low = block[(isFive ? 48 : 16) + 32 * (unit / 2) + i] >> (unit % 2 == 0 ? 0 : 4) & 15;
  const int code = isFive ? low | (block[16 + i] >> unit & 1) << 4 : low;
  const float factor = tw_product(tw_half_at(matrix, block), (float)scale);
  const float offset = tw_product(tw_half_at(matrix, block + 2), (float)minimum);
  return tw_product(factor, (float)code) - offset;
}

/** What is read of element (row, column) of a range. */
static __device__ __forceinline__ float tw_decoded(tw_encoded *matrix, const void *staged, int row, int column) {
  const char *source = (const char *)staged;
  row += matrix->row;
  if (matrix->block != 0) return tw_block_value(matrix, source, row, column);
  const float code =
      matrix->reads < 2 ? tw_number_of(tw_code_at(matrix->codes, source, row, column), matrix->codes.type) : 0.0f;
  if (matrix->reads == 1) return code;
  float scale;
  int zero;
  tw_affine(matrix, source, row, column, &scale, &zero);
  return matrix->reads == 3 ? scale : tw_product(code - (float)zero, scale);
}

/** The word of a group of a row: its scale with the zero point in the lowest bits, which are free (ir/groups.ts). */
static __device__ __forceinline__ unsigned tw_scale_word(tw_encoded *matrix, const void *staged, int row, int group) {
  float scale;
  int zero;
  tw_affine(matrix, (const char *)staged, row + matrix->row, group * matrix->group, &scale, &zero);
  const unsigned bits = __float_as_uint(scale);
  if ((bits & 255u) != 0 || (unsigned)zero > 15u) matrix->isDamaged = 1;
  return bits | (unsigned)zero;
}
`;
