/** Writes GGUF files for tests, field by field, sound or not. Facts: ggml's docs/gguf.md. */

/** Values of metadata by their type in the file. */
export type GgufValue =
  | { readonly u32: number }
  | { readonly u64: bigint }
  | { readonly f32: number }
  | { readonly flag: boolean }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly i32s: readonly number[] }
  | { readonly f32s: readonly number[] }
  | { readonly flags: readonly boolean[] };

export type GgufPairs = Readonly<Record<string, GgufValue>>;

export interface GgufTensor {
  readonly name: string;
  /** Slowest extent first. */
  readonly shape: readonly number[];
  /** The number of its element type. */
  readonly type: number;
  readonly bytes: Buffer;
}

export interface GgufFile {
  readonly version?: number;
  readonly alignment?: number;
  readonly pairs: GgufPairs | readonly (readonly [key: string, value: GgufValue])[];
  readonly tensors: readonly GgufTensor[];
  /** Another place of a tensor, from the beginning of the data. */
  readonly offsetOf?: (tensor: GgufTensor, offset: number) => number;
}

export const GGUF_TYPES = { F32: 0, F16: 1, Q4_0: 2, Q8_0: 8, Q4_K: 12, Q5_K: 13, Q6_K: 14, BF16: 30 } as const;
export type GgufType = keyof typeof GGUF_TYPES;

export const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
export const u64 = (value: bigint | number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
export const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
const bytesOf = (view: ArrayBufferView): Buffer => Buffer.from(view.buffer, view.byteOffset, view.byteLength);
const list = (type: number, count: number, elements: Buffer): Buffer =>
  Buffer.concat([u32(9), u32(type), u64(count), elements]);

/** The type of a value and its bytes. */
export function ggufValue(value: GgufValue): Buffer {
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ('u64' in value) return Buffer.concat([u32(10), u64(value.u64)]);
  if ('f32' in value) return Buffer.concat([u32(6), bytesOf(Float32Array.of(value.f32))]);
  if ('flag' in value) return Buffer.concat([u32(7), Buffer.of(value.flag ? 1 : 0)]);
  if ('text' in value) return Buffer.concat([u32(8), text(value.text)]);
  if ('texts' in value) return list(8, value.texts.length, Buffer.concat(value.texts.map(text)));
  if ('i32s' in value) return list(5, value.i32s.length, bytesOf(Int32Array.from(value.i32s)));
  if ('f32s' in value) return list(6, value.f32s.length, bytesOf(Float32Array.from(value.f32s)));
  return list(7, value.flags.length, Buffer.from(value.flags.map(Number)));
}

/** The bytes of a file. */
export function ggufFile({
  version = 3,
  alignment = 32,
  pairs: given,
  tensors,
  offsetOf = (_, at) => at,
}: GgufFile): Buffer {
  const pairs = Array.isArray(given) ? (given as readonly (readonly [string, GgufValue])[]) : Object.entries(given);
  const padded = (bytes: Buffer): Buffer =>
    Buffer.concat([bytes, Buffer.alloc((alignment - (bytes.length % alignment)) % alignment)]);
  let at = 0;
  const described = tensors.map((tensor) => {
    const { name, shape, type, bytes } = tensor;
    const extents = [...shape].reverse().map(u64);
    const entry = Buffer.concat([text(name), u32(shape.length), ...extents, u32(type), u64(offsetOf(tensor, at))]);
    at += padded(bytes).length;
    return entry;
  });
  const header = Buffer.concat([
    Buffer.from('GGUF'),
    u32(version),
    u64(tensors.length),
    u64(pairs.length),
    ...pairs.map(([key, value]) => Buffer.concat([text(key), ggufValue(value)])),
    ...described,
  ]);
  return Buffer.concat([padded(header), ...tensors.map(({ bytes }) => padded(bytes))]);
}
