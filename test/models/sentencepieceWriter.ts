/** Writes SentencePiece models for tests, with only the fields that the reader knows. */

export function varint(value: bigint): number[] {
  const bytes: number[] = [];
  for (; value >= 0x80n; value >>= 7n) bytes.push(Number(value & 0x7fn) | 0x80);
  return [...bytes, Number(value)];
}

const field = (number: number, value: number): number[] => [...varint(BigInt(number << 3)), ...varint(BigInt(value))];
const bytesField = (number: number, bytes: readonly number[]): number[] => [
  ...varint(BigInt((number << 3) | 2)),
  ...varint(BigInt(bytes.length)),
  ...bytes,
];

/** A SentencePiece message. Type 1 (normal) is the default and is not written. */
export function piece(text: string, score: number, type = 1): number[] {
  const float = [...new Uint8Array(Float32Array.of(score).buffer)];
  return [...bytesField(1, [...Buffer.from(text)]), (2 << 3) | 5, ...float, ...(type === 1 ? [] : field(3, type))];
}

type Piece = readonly [text: string, score: number, type?: number];
/** Unknown, BOS and EOS, ids 0 to 2. */
export const toyPieces: readonly Piece[] = [
  ['<unk>', 0, 2],
  ['<s>', 0, 3],
  ['</s>', 0, 3],
];

export interface ModelOptions {
  readonly pieces?: readonly Piece[];
  readonly modelType?: number;
  readonly byteFallback?: boolean;
  readonly addDummyPrefix?: boolean;
  readonly removeExtraWhitespaces?: boolean;
  readonly charsmap?: boolean;
}

/** A ModelProto. Defaults are LLaMA's settings without byte fallback. */
export function sentencePieceModel(options: ModelOptions): Uint8Array {
  const {
    pieces = toyPieces,
    modelType = 2,
    byteFallback = false,
    addDummyPrefix = true,
    removeExtraWhitespaces = false,
    charsmap = false,
  } = options;
  const trainer = [...field(3, modelType), ...field(35, Number(byteFallback))];
  const normalizer = [
    ...(charsmap ? bytesField(2, [1, 2, 3]) : []),
    ...field(3, Number(addDummyPrefix)),
    ...field(4, Number(removeExtraWhitespaces)),
  ];
  return Uint8Array.from([
    ...pieces.flatMap((p) => bytesField(1, piece(...p))),
    ...bytesField(2, trainer),
    ...bytesField(3, normalizer),
  ]);
}
