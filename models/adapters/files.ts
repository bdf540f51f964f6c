/** The tensors of an adapter's file, by module and by what they are to it. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { fileSize, readRange, withFile } from '../../system/read.js';
import type { WeightEntry } from '../model/tensors.js';
import { readSafetensorsHeader } from '../weights/safetensors.js';
import { readTorchFile } from '../weights/stateDict.js';
import { ADAPTER_HINT } from './config.js';

/** What a tensor is to its module. */
export type Part =
  | 'A'
  | 'B'
  | 'productBias'
  | 'embeddingA'
  | 'embeddingB'
  | 'magnitude'
  | 'tokens'
  | 'weight'
  | 'bias'
  /** Of the module that the adapter wraps: saved beside it. */
  | 'baseWeight'
  | 'baseBias';

const PARTS: readonly (readonly [suffix: RegExp, part: Part | undefined])[] = [
  [/\.lora_A\.weight$/, 'A'],
  [/\.lora_B\.weight$/, 'B'],
  [/\.lora_B\.bias$/, 'productBias'],
  [/\.lora_embedding_A$/, 'embeddingA'],
  [/\.lora_embedding_B$/, 'embeddingB'],
  [/\.lora_magnitude_vector(?:\.weight)?$/, 'magnitude'],
  [/\.token_adapter\.trainable_tokens_delta$/, 'tokens'],
  // What a wrapper keeps of the base is not used while the adapter is.
  [/\.original_module\.(?:weight|bias)$/, undefined],
  [/\.(?:token_adapter\.)?base_layer\.weight$/, 'baseWeight'],
  [/\.(?:token_adapter\.)?base_layer\.bias$/, 'baseBias'],
  [/\.weight$/, 'weight'],
  [/\.bias$/, 'bias'],
];

/** A tensor of the file. */
export interface AdapterTensor extends WeightEntry {
  readonly part: Part;
  /** Path of its module as the file has it, below the model that was wrapped. */
  readonly path: string;
}

/** The file of an adapter, which must stay as it was when it was opened. */
export interface AdapterFile {
  readonly file: string;
  readonly sizeBytes: number;
  readonly tensors: readonly AdapterTensor[];
  /** All values of a tensor as f32, or those of some rows. */
  readonly read: (tensor: AdapterTensor, first?: number, rows?: number) => Float32Array;
}

const NAMES = [
  { name: 'adapter_model.safetensors', read: readSafetensorsHeader },
  { name: 'adapter_model.bin', read: readTorchFile },
] as const;

/** What wrappers of training put into names. */
const WRAPPERS = /(^|\.)(?:_orig_mod|_fsdp_wrapped_module)(?=\.)/g;
const WRAPPED = 'base_model.model.';

const BYTES: Readonly<Record<string, 2 | 4>> = { F32: 4, F16: 2, BF16: 2 };

function tensorOf(entry: WeightEntry, file: string): AdapterTensor | undefined {
  const plain = entry.name.replaceAll(WRAPPERS, '').replace(/^\./, '');
  const name = plain.startsWith(WRAPPED) ? plain.slice(WRAPPED.length) : plain;
  const found = PARTS.find(([suffix]) => suffix.test(name));
  if (found === undefined)
    throw new UserError(
      `${file}: tensor ${quote(entry.name, 120)} is none that an adapter is known to have`,
      ADAPTER_HINT,
    );
  const [suffix, part] = found;
  if (part === undefined) return undefined;
  if (BYTES[entry.dtype] === undefined)
    throw new UserError(
      `${file}: tensor ${quote(entry.name, 120)} has elements of ${entry.dtype}; ` +
        `supported: ${Object.keys(BYTES).join(', ')}`,
      ADAPTER_HINT,
    );
  if (entry.shape.length === 0 || entry.shape.length > 2 || entry.shape.includes(0))
    throw new UserError(
      `${file}: tensor ${quote(entry.name, 120)} has the shape [${entry.shape.slice(0, 8).join(', ')}]`,
      ADAPTER_HINT,
    );
  return { ...entry, part, path: name.replace(suffix, '') };
}

/** Halves as floats. */
let halves: Float32Array | undefined;
function halfTable(): Float32Array {
  if (halves !== undefined) return halves;
  halves = new Float32Array(1 << 16);
  for (let bits = 0; bits < 1 << 16; bits++) {
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 0x1f, bits & 0x3ff];
    halves[bits] =
      exponent === 0x1f
        ? fraction === 0
          ? sign * Infinity
          : NaN
        : sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return halves;
}

/** Elements of a safetensors dtype as f32, exactly. */
export function asFloats(bytes: Buffer, dtype: string): Float32Array {
  const own = new Uint8Array(bytes); // A copy, so that elements are aligned.
  if (dtype === 'F32') return new Float32Array(own.buffer);
  const words = new Uint16Array(own.buffer);
  if (dtype === 'F16') return Float32Array.from(words, (word) => halfTable()[word]!);
  const wide = new Uint32Array(words.length);
  for (let i = 0; i < words.length; i++) wide[i] = words[i]! << 16;
  return new Float32Array(wide.buffer);
}

/** What tells that a file is another one than it was. */
function markOf(file: string): string {
  try {
    const { size, mtimeMs, ino } = statSync(file);
    return `${size} ${mtimeMs} ${ino}`;
  } catch {
    return 'gone';
  }
}

/**
 * Opens the weights of the adapter in `dir`: reads which tensors there are. Throws UserError for a file that is
 * damaged, and for names that no adapter has.
 */
export function openAdapterFile(dir: string): AdapterFile {
  const found = NAMES.find(({ name }) => fileSize(join(dir, name)) !== undefined);
  if (found === undefined)
    throw new UserError(`${dir}: neither ${NAMES.map(({ name }) => name).join(' nor ')} is in it`, ADAPTER_HINT);
  const file = join(dir, found.name);
  const mark = markOf(file);
  const { entries, sizeBytes } = found.read(file);
  const tensors = entries.flatMap((entry) => tensorOf(entry, file) ?? []);
  if (tensors.length === 0) throw new UserError(`${file}: no tensors in it`, ADAPTER_HINT);
  return {
    file,
    sizeBytes,
    tensors,
    read: ({ dtype, shape, offset, byteLength }, first = 0, rows = shape[0]!) => {
      if (markOf(file) !== mark)
        throw new UserError(`${file}: the file has changed since the adapter was opened`, 'open the adapter again');
      const rowBytes = byteLength / shape[0]!;
      const bytes = withFile(file, (fd) => readRange(fd, offset + first * rowBytes, rows * rowBytes));
      if (bytes.length !== rows * rowBytes)
        throw new UserError(`${file}: the file ends within a tensor`, 'get the adapter from its publisher again');
      return asFloats(bytes, dtype);
    },
  };
}
