/**
 * The handoff of rounded products from consumers to the warps that run deferred epilogues: 20 bits per product, in
 * shared memory, in the order of the accumulators. Neither side transposes anything. Every access is 16 bytes per lane,
 * adjacent to its neighbour's.
 *
 * Each consumer warp has its own area. For each chunk of four column groups the area holds 512 bytes for each row half:
 * per lane, one word for each group with the upper 16 bits of two products. After every four chunks, the same number of
 * bytes holds one word for each chunk: bits 12 to 15 of its eight products.
 */
import { indent } from '../text/statements.js';

/** Column groups of a chunk. */
export const CHUNK_GROUPS = 4;
export const CHUNK_BYTES = 1024;
/** Chunks whose lower bits lie together. */
export const CHUNKS_OF_PART = 4;
/** Bytes from a row half's part of a chunk to that of the rows 8 further. */
export const HALF_BYTES = CHUNK_BYTES / 2;

const chunksOf = (tn: number): number => Math.ceil(tn / 8 / CHUNK_GROUPS);
const lowChunksOf = (tn: number): number => Math.ceil(chunksOf(tn) / CHUNKS_OF_PART);
/** Number of the first chunk of lower bits. */
export const lowChunk = chunksOf;

/** Bytes of a consumer warp's 16 rows of a tile. */
export const handoffWarpBytes = (tn: number): number => (chunksOf(tn) + lowChunksOf(tn)) * CHUNK_BYTES;

/**
 * Statements that store the accumulators of a warp, in instructions of `wn` columns, from address `handoff` on, which
 * includes the lane.
 */
export function storeHandoffText(tn: number, wn: number, depth: number): string {
  const groups = tn / 8,
    chunks = chunksOf(tn);
  const product = (chunk: number, h: number, i: number): string => {
    const group = CHUNK_GROUPS * chunk + (i >> 1);
    const [block, own] = [Math.floor(group / (wn / 8)), group % (wn / 8)];
    return group < groups ? `acc[${block}][${4 * own + 2 * h + (i & 1)}]` : '0.0f';
  };
  const eight = (chunk: number, h: number): string[] => Array.from({ length: 8 }, (_, i) => product(chunk, h, i));
  const lines: string[] = [];
  for (let first = 0; first < chunks; first += CHUNKS_OF_PART) {
    const count = Math.min(CHUNKS_OF_PART, chunks - first);
    for (const h of [0, 1]) {
      const each = Array.from({ length: count }, (_, j) => eight(first + j, h));
      each.forEach((p, j) => {
        const words = [0, 2, 4, 6].map((i) => `tw_high(${p[i]!}, ${p[i + 1]!})`);
        lines.push(`tw_put(handoff + ${(first + j) * CHUNK_BYTES + h * HALF_BYTES}, ${words.join(', ')});`);
      });
      const low = Array.from({ length: CHUNKS_OF_PART }, (_, j) =>
        j < count ? `tw_low(${each[j]!.join(', ')})` : '0u',
      );
      lines.push(
        `tw_put(handoff + ${(chunks + first / CHUNKS_OF_PART) * CHUNK_BYTES + h * HALF_BYTES}, ${low.join(', ')});`,
      );
    }
  }
  return indent(lines, depth);
}

/** Where a row half's words are loaded. */
export const declareHandoff = (tn: number): string =>
  `unsigned high_[${CHUNK_GROUPS * chunksOf(tn)}], low_[${CHUNK_GROUPS * lowChunksOf(tn)}];`;

/** Statements that load a row half into `high_` and `low_` from address `handoff` on, which includes lane and half. */
export function loadHandoffText(tn: number, depth: number): string {
  const [chunks, lows] = [chunksOf(tn), lowChunksOf(tn)];
  return indent(
    [
      declareHandoff(tn),
      ...Array.from(
        { length: chunks },
        (_, j) => `tw_take(handoff + ${j * CHUNK_BYTES}, high_ + ${CHUNK_GROUPS * j});`,
      ),
      ...Array.from(
        { length: lows },
        (_, j) => `tw_take(handoff + ${(chunks + j) * CHUNK_BYTES}, low_ + ${CHUNK_GROUPS * j});`,
      ),
    ],
    depth,
  );
}

/** C expression (float): a product of column group `group`, a C expression that is constant once loops are unrolled. */
export const handoffProduct = (group: string, lane: number): string =>
  `tw_product_of(high_[${group}], low_[(${group}) / ${CHUNK_GROUPS}], (${group}) % ${CHUNK_GROUPS}, ${lane})`;

/**
 * Statements that let the compiler forget what it has made of the words of a row half. Products that are read twice
 * would otherwise stay unpacked from the first time to the second, in more registers than there are.
 */
export const forgetProducts = (tn: number): readonly string[] =>
  (
    [
      ['high_', chunksOf(tn)],
      ['low_', lowChunksOf(tn)],
    ] as const
  ).flatMap(([name, chunks]) => [
    '#pragma unroll',
    `for (int i = 0; i < ${CHUNK_GROUPS * chunks}; i++) asm volatile("" : "+r"(${name}[i]) :: "memory");`,
  ]);
