/** Small bases and adapters, written here, whose values are random, and products of them in float64. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { openAdapter, type ResolvedAdapter } from '../../../models/adapters/open.js';
import { asChange } from '../../../models/adapters/change.js';
import { changedRows, rowsOf } from '../../../models/adapters/values.js';
import { type Checkpoint, openCheckpoint } from '../../../models/checkpoint.js';
import { describeModel } from '../../../models/config.js';
import type { Json } from '../../../models/model/model.js';
import { layOut } from '../../../models/weights/safetensors.js';
import { randomNumbers } from '../../support/pathModel.js';

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-adapters-'));
  folders.push(folder);
  return folder;
}

export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}
export type Tensors = Readonly<Record<string, Tensor>>;

const random = randomNumbers(7);
export function tensor(...shape: readonly number[]): Tensor {
  const count = shape.reduce((all, extent) => all * extent, 1);
  return { shape, data: Float32Array.from({ length: count }, () => random() - 0.5) };
}

export function writeTensors(path: string, tensors: Tensors): void {
  const layout = layOut(
    Object.entries(tensors).map(([name, { shape, data }]) => ({
      name,
      dtype: 'F32',
      shape,
      byteLength: data.byteLength,
    })),
  );
  const bytes = Buffer.alloc(layout.sizeBytes);
  bytes.set(layout.header);
  for (const { name, offset } of layout.entries) bytes.set(new Uint8Array(tensors[name]!.data.buffer), offset);
  writeFileSync(path, bytes);
}

const SIZES = {
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 10,
  max_position_embeddings: 64,
};

/** A base of a family, with random values. */
export function base(
  model_type: string,
  architecture: string,
  more: Json = {},
): Checkpoint & { readonly values: Tensors } {
  const dir = newFolder();
  const json = { architectures: [architecture], model_type, ...SIZES, ...more };
  writeFileSync(join(dir, 'config.json'), JSON.stringify(json));
  const values = Object.fromEntries(
    describeModel(json, 'config.json').tensors.map(({ name, shape }) => [name, tensor(...shape)]),
  );
  writeTensors(join(dir, 'model.safetensors'), values);
  return { ...openCheckpoint(dir), values };
}

export const llama = (more: Json = {}): ReturnType<typeof base> =>
  base('llama', 'LlamaForCausalLM', { tie_word_embeddings: false, ...more });

const PREFIX = 'base_model.model.';

/** Writes an adapter; names of tensors are those below the wrapped model. */
export function writeAdapter(config: Json, tensors: Tensors, dir = newFolder()): string {
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, 'adapter_config.json'),
    JSON.stringify({ peft_type: 'LORA', r: 2, lora_alpha: 6, ...config }),
  );
  writeTensors(
    join(dir, 'adapter_model.safetensors'),
    Object.fromEntries(Object.entries(tensors).map(([name, each]) => [PREFIX + name, each])),
  );
  return dir;
}

export const open = (of: Checkpoint, config: Json, tensors: Tensors): ResolvedAdapter =>
  openAdapter(writeAdapter(config, tensors), of);

/** The values of a tensor with an adapter. */
export function merged(of: Checkpoint, adapter: ResolvedAdapter, name: string): number[] {
  const product = adapter.products.get(name);
  const change = adapter.changes.get(name) ?? (product === undefined ? undefined : asChange(product));
  if (change === undefined) throw new Error(`${name} does not change`);
  const from = change.from === undefined ? undefined : of.tensors.get(change.from);
  return [...changedRows(change, from && rowsOf(from))(0, change.shape[0]!)];
}

/** [rows, inner]·[inner, columns], in float64. */
export function times(a: Tensor, b: Tensor): number[][] {
  const [rows, inner, columns] = [a.shape[0]!, a.shape[1]!, b.shape[1]!];
  return Array.from({ length: rows }, (_, i) =>
    Array.from({ length: columns }, (__, j) => {
      let sum = 0;
      for (let k = 0; k < inner; k++) sum += a.data[i * inner + k]! * b.data[k * columns + j]!;
      return sum;
    }),
  );
}

/** W + s·delta, by rows. */
export const plus = ({ data }: Tensor, scale: number, delta: number[][]): number[] =>
  delta.flatMap((row, i) => row.map((value, j) => data[i * row.length + j]! + scale * value));
