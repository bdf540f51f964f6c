/** What a GGUF file says of its model, and what is known of an architecture. */
import { UserError } from '../../errors.js';
import { readRange, withFile } from '../../system/read.js';
import type { Json, StoredWays } from '../model/model.js';
import type { WeightEntry } from '../model/tensors.js';
import type { GgufHeader } from './file.js';
import type { Metadata } from './metadata.js';
import type { GgufModuleNames } from './modules.js';

/** Bounds of sizes, and of factors. */
export const MOST = 1 << 24;
export const FACTOR: readonly [number, number] = [1e-6, 1e6];

export interface GgufArchitecture {
  /** general.architecture */
  readonly name: string;
  /** Settings of its own. `model_type` names the family. Throws UserError for what is not known. */
  readonly settings: (facts: GgufFacts, shape: Shape) => Json;
  readonly modules: (facts: GgufFacts) => GgufModuleNames;
  /** How its files hold weights in another way than Hugging Face checkpoints do. */
  readonly ways: StoredWays;
  /** The key of config.json for the part of a head that is turned. Default: whole heads are turned. */
  readonly partKey?: 'partial_rotary_factor' | 'rotary_pct';
  /** True if layers with a window have a theta of their own. */
  readonly hasWindowTheta?: boolean;
  /** What its YaRN has beside what all have. */
  readonly yarn?: (facts: GgufFacts) => Json;
  /** Heads of models whose file describes them in keys of their own. Default: as all others. */
  readonly heads?: (facts: GgufFacts) => GgufHeads;
  /** Tensors whose parts, as the graph reads them, are tensors of the file, by the names of those that they are of. */
  readonly apart?: RegExp;
  /** Lists of metadata that hold a number for each layer, and the tensors below a layer that they are. */
  readonly lists?: Readonly<Record<string, string>>;
}

/** Sizes of heads in the words of config.json, and how many of their elements rotary embedding turns. */
export interface GgufHeads {
  readonly json: Json;
  readonly headDim: number;
  readonly turned: number;
}

/** Sizes that settings depend on. */
export interface Shape {
  readonly hidden: number;
  readonly heads: number;
  readonly headDim: number;
  readonly layers: number;
}

// What a GGUF file says of its model: the keys of its architecture, and the shapes and values of tensors.

/** Numbers of a vector that settings are read from. */
const MAX_VALUES = 1024;
const MAX_LAYERS = 1024;
const MAX_FURTHER = 8;

export class GgufFacts {
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

  /** Layers of the model itself; those that predict further tokens follow them. */
  get layers(): number {
    const further = this.whole('nextn_predict_layers', 0, MAX_FURTHER) ?? 0;
    return this.required('block_count', further + 1, MAX_LAYERS) - further;
  }

  /** Whether layers, by number, have this tensor. */
  layersWith(tensor: string): readonly boolean[] {
    return Array.from({ length: this.layers }, (_, layer) => this.has(`blk.${layer}.${tensor}`));
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
