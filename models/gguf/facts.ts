/** What a GGUF file says of its model: the keys of its architecture, and the shapes and values of tensors. */
import { UserError } from '../../errors.js';
import { readRange, withFile } from '../../system/read.js';
import type { WeightEntry } from '../family/weightFile.js';
import type { GgufHeader } from './header.js';
import type { Metadata } from './metadata.js';

/** Numbers of a vector that settings are read from. */
const MAX_VALUES = 1024;
const MAX_LAYERS = 1024;

export class Facts {
  /** Of the first file, which holds all keys. */
  readonly metadata: Metadata;
  readonly where: string;
  /** general.architecture */
  readonly architecture: string;
  private readonly tensors: ReadonlyMap<string, WeightEntry & { readonly file: string }>;

  constructor(headers: readonly [GgufHeader, ...GgufHeader[]], architecture: string) {
    this.metadata = headers[0].metadata;
    this.where = headers[0].file;
    this.architecture = architecture;
    this.tensors = new Map(
      headers.flatMap(({ file, entries }) => entries.map((entry) => [entry.name, { ...entry, file }])),
    );
  }

  /** The key of a setting of this architecture. */
  key(setting: string): string {
    return `${this.architecture}.${setting}`;
  }

  number(setting: string, least: number, most: number): number | undefined {
    return this.metadata.number(this.key(setting), least, most);
  }

  whole(setting: string, least: number, most: number): number | undefined {
    return this.metadata.whole(this.key(setting), least, most);
  }

  /** A whole number that every such file has. Throws UserError. */
  required(setting: string, least: number, most: number): number {
    return this.whole(setting, least, most) ?? this.refuse(`${this.key(setting)} is missing`);
  }

  /** A whole number, or a list of one for each layer, which must agree. Throws UserError. */
  alike(setting: string, least: number, most: number): number | undefined {
    const key = this.key(setting);
    if (!this.metadata.isList(key)) return this.whole(setting, least, most);
    const [first, ...others] = this.metadata.numbers(key) ?? [];
    if (first === undefined || others.some((other) => other !== first))
      return this.refuse(`${key} differs from layer to layer`);
    if (Number.isInteger(first) && first >= least && first <= most) return first;
    return this.refuse(`${key}: expected whole numbers from ${least} to ${most}, got ${first}`);
  }

  get layers(): number {
    return this.required('block_count', 1, MAX_LAYERS);
  }

  has(tensor: string): boolean {
    return this.tensors.has(tensor);
  }

  shape(tensor: string): readonly number[] | undefined {
    return this.tensors.get(tensor)?.shape;
  }

  /** The numbers of a short vector; undefined if there is no such tensor. Throws UserError. */
  values(tensor: string): readonly number[] | undefined {
    const entry = this.tensors.get(tensor);
    if (entry === undefined) return undefined;
    const [count = 0] = entry.shape;
    if (entry.dtype !== 'F32' || entry.shape.length !== 1 || count > MAX_VALUES)
      return this.refuse(`tensor ${tensor}: expected at most ${MAX_VALUES} numbers of type F32`);
    const bytes = withFile(entry.file, (fd) => readRange(fd, entry.offset, entry.byteLength));
    return Array.from({ length: count }, (_, i) => bytes.readFloatLE(4 * i));
  }

  /** Refuses a file whose meaning is not known. */
  refuse(what: string): never {
    throw new UserError(`${this.where}: ${what}`, 'use the Hugging Face checkpoint of the model');
  }
}
