/**
 * Rows of ggml's blocks for tests: codes and scales are drawn, put where the format has them, and the values follow
 * from them by its formula. Written from the layout, apart from the decoders.
 */
import { FORMATS } from '../../ir/storage.js';
import type { Random } from '../fuzz/mutate.js';
import type { Encode, GgufType } from './gguf.js';

interface Row {
  readonly bytes: Buffer;
  readonly values: readonly number[];
}

export type BlockType = Exclude<GgufType, 'F32' | 'F16' | 'BF16'>;

const below = (random: Random, most: number): number => Math.floor(random() * most);
const drawn = (random: Random, count: number, most: number): number[] =>
  Array.from({ length: count }, () => below(random, most));

/** A scale that f16 holds exactly, about `size`. */
function half(random: Random, size: number): { readonly value: number; readonly bytes: Buffer } {
  const bytes = Buffer.from(FORMATS.f16.encode(Float64Array.of(size * (0.5 + random()))));
  return { value: FORMATS.f16.decode(bytes)[0]!, bytes };
}

/** 8 scales and 8 minima of 6 bits in 12 bytes: the lower 4 of each as bytes, then nibbles, and the rest above. */
function packScales(scales: readonly number[], minima: readonly number[]): Buffer {
  const bytes = Buffer.alloc(12);
  for (let j = 0; j < 4; j++) {
    bytes[j] = scales[j]! + ((scales[j + 4]! >> 4) << 6);
    bytes[j + 4] = minima[j]! + ((minima[j + 4]! >> 4) << 6);
    bytes[j + 8] = (scales[j + 4]! & 15) + ((minima[j + 4]! & 15) << 4);
  }
  return bytes;
}

/** Codes of 4 bits of sub-blocks of 32: those of an even one in low halves, those of the next in high halves. */
function packNibbles(codes: readonly number[]): Buffer {
  const bytes = Buffer.alloc(codes.length / 2);
  codes.forEach((code, i) => (bytes[32 * (i >> 6) + (i % 32)]! |= (code & 15) << (i % 64 < 32 ? 0 : 4)));
  return bytes;
}

/** Q4_K and Q5_K. */
function superBlock(random: Random, bits: 4 | 5): Row {
  const [d, dmin] = [half(random, 0.001), half(random, 0.0005)];
  const [scales, minima] = [drawn(random, 8, 64), drawn(random, 8, 64)];
  const codes = drawn(random, 256, 2 ** bits);
  const high = Buffer.alloc(32);
  codes.forEach((code, i) => (high[i % 32]! |= (code >> 4) << (i >> 5)));
  return {
    bytes: Buffer.concat([
      ...[d.bytes, dmin.bytes, packScales(scales, minima)],
      ...(bits === 5 ? [high] : []),
      packNibbles(codes),
    ]),
    values: codes.map((code, i) => d.value * scales[i >> 5]! * code - dmin.value * minima[i >> 5]!),
  };
}

function sixBits(random: Random): Row {
  const d = half(random, 0.0002);
  const scales = drawn(random, 16, 256).map((scale) => scale - 128);
  const codes = drawn(random, 256, 64);
  const [low, high] = [Buffer.alloc(128), Buffer.alloc(64)];
  codes.forEach((code, i) => {
    // The four runs of 32 elements in each half of 128 share 64 bytes of low bits and 32 of high bits.
    const [part, run, l] = [i >> 7, (i % 128) >> 5, i % 32];
    low[64 * part + 32 * (run & 1) + l]! |= (code & 15) << (4 * (run >> 1));
    high[32 * part + l]! |= (code >> 4) << (2 * run);
  });
  return {
    bytes: Buffer.concat([low, high, Buffer.from(Int8Array.from(scales).buffer), d.bytes]),
    values: codes.map((code, i) => d.value * scales[i >> 4]! * (code - 32)),
  };
}

const MAKERS: Readonly<Record<BlockType, (random: Random) => Row>> = {
  Q8_0: (random) => {
    const d = half(random, 0.003);
    const codes = drawn(random, 32, 256).map((code) => code - 128);
    return {
      bytes: Buffer.concat([d.bytes, Buffer.from(Int8Array.from(codes).buffer)]),
      values: codes.map((q) => d.value * q),
    };
  },
  Q4_0: (random) => {
    const d = half(random, 0.05);
    const codes = drawn(random, 32, 16);
    const bytes = Buffer.from(codes.slice(0, 16).map((code, i) => code + 16 * codes[i + 16]!));
    return { bytes: Buffer.concat([d.bytes, bytes]), values: codes.map((q) => d.value * (q - 8)) };
  },
  Q4_K: (random) => superBlock(random, 4),
  Q5_K: (random) => superBlock(random, 5),
  Q6_K: sixBits,
  MXFP4: (random) => {
    const power = 118 + below(random, 5);
    const codes = drawn(random, 32, 16);
    // In ggml's words: codes are twice the numbers, and the scale is half of the power.
    const twice = [0, 1, 2, 3, 4, 6, 8, 12];
    const bytes = Buffer.from(codes.slice(0, 16).map((code, i) => code + 16 * codes[i + 16]!));
    return {
      bytes: Buffer.concat([Buffer.of(power), bytes]),
      values: codes.map((code) => (code & 8 ? -1 : 1) * twice[code & 7]! * 2 ** (power - 128)),
    };
  },
};

export const BLOCK_TYPES = Object.keys(MAKERS) as BlockType[];

/** A block and its values, each rounded to f32 once. */
export function randomBlock(type: BlockType, random: Random): Row {
  const { bytes, values } = MAKERS[type](random);
  return { bytes, values: values.map(Math.fround) };
}

/** Matrices of one type. They are drawn first; `encode` gives the bytes of what was drawn, in any order of rows. */
export class BlockWriter {
  private readonly type: BlockType;
  private readonly random: Random;
  private readonly rows = new Map<string, Buffer>();
  private columns = 0;

  constructor(type: BlockType, random: Random) {
    this.type = type;
    this.random = random;
  }

  /** Values of `rows` rows of `columns`. */
  draw(rows: number, columns: number): Float64Array {
    const values: number[] = [];
    for (let row = 0; row < rows; row++) {
      const own: Row[] = [];
      for (let at = 0; at < columns; at += own.at(-1)!.values.length) own.push(randomBlock(this.type, this.random));
      const all = own.flatMap((block) => block.values);
      this.rows.set(all.slice(0, 32).join(), Buffer.concat(own.map(({ bytes }) => bytes)));
      values.push(...all);
    }
    this.columns = columns;
    return Float64Array.from(values);
  }

  /** Of matrices whose rows are as long as those drawn. */
  encode: Encode = (values) =>
    Buffer.concat(
      Array.from({ length: values.length / this.columns }, (_, row) => {
        const bytes = this.rows.get(values.slice(row * this.columns, row * this.columns + 32).join());
        if (bytes === undefined) throw new Error(`row ${row} was not drawn`);
        return bytes;
      }),
    );
}
