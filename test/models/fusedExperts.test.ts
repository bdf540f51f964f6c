/** Checkpoints with all experts of a layer in one tensor: places of their matrices, and what is refused. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Checkpoint, openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import { fuseExperts } from '../support/checkpoints.js';
import { layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

const { architectures: _, ...PLAIN } = SMALL_CONFIG as Json;
const EXPERTS = { ...PLAIN, num_experts: 3, num_experts_per_tok: 2, moe_intermediate_size: 5, num_hidden_layers: 2 };
const QWEN: Json = { ...EXPERTS, model_type: 'qwen3_moe', head_dim: 4 };
const MIXTRAL: Json = { ...EXPERTS, model_type: 'mixtral', num_local_experts: 3, intermediate_size: 4, head_dim: 4 };

/** A checkpoint with a tensor for each matrix, whose elements all differ. */
function folder(config: Json): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', config);
  writeJson(dir, 'tokenizer.json', {});
  const tensors = describeModel(config, 'config.json').tensors.map(({ name, shape }) => [name, shape] as const);
  const { header, size } = layOut(tensors);
  writeFileSync(
    join(dir, 'model.safetensors'),
    safetensors(header, new Uint8Array(Uint16Array.from({ length: size / 2 }, (_, i) => i).buffer)),
  );
  return dir;
}

function fused(config: Json, isTurned: boolean, rename?: (name: string) => string): string {
  const dir = temporaryFolder();
  fuseExperts(folder(config), dir, { isTurned, ...(rename === undefined ? {} : { rename }) });
  return dir;
}

/** The elements of a matrix, row by row, as they are where the checkpoint says. */
function elementsOf({ tensors }: Checkpoint, name: string): readonly number[] {
  const place = tensors.get(name);
  const [rows = 1, columns = 1] = place?.shape ?? [];
  const at = (row: number, column: number): number => {
    if (place?.kind === 'file')
      return readFileSync(place.file).readUInt16LE(place.offset + 2 * (row * columns + column));
    const [tile] = place?.kind === 'assembled' ? place.tiles : [];
    if (tile?.isTransposed !== true) throw new Error(`${name} has no place`);
    return readFileSync(tile.file).readUInt16LE(tile.offset + 2 * (column * tile.stride + row));
  };
  return Array.from({ length: rows * columns }, (_, i) => at(Math.floor(i / columns), i % columns));
}

const inNewBlocks = (name: string): string => name.replace('.block_sparse_moe.', '.mlp.');

describe('all experts of a layer in one tensor', () => {
  it.each([
    ['Qwen', QWEN, false, undefined],
    ['Qwen, turned over', QWEN, true, undefined],
    ['Mixtral', MIXTRAL, false, undefined],
    ['Mixtral by the names of transformers 5', MIXTRAL, false, inNewBlocks],
    ['Mixtral, turned over', MIXTRAL, true, inNewBlocks],
  ] as const)('have the matrices of separate tensors: %s', (_, config, isTurned, rename) => {
    const [plain, copy] = [openCheckpoint(folder(config)), openCheckpoint(fused(config, isTurned, rename))];
    expect(new Set(copy.tensors.keys())).toEqual(new Set(plain.tensors.keys()));
    const matrices = [...plain.tensors.keys()].filter((name) => /\.layers\.1\..*(?:experts\.|gate)/.test(name));
    expect(matrices.length).toBeGreaterThan(9);
    for (const name of matrices) expect(elementsOf(copy, name), name).toEqual(elementsOf(plain, name));
  });

  it('tells whether they are turned over by both tensors where one has equal sides', () => {
    for (const width of [4, 8]) {
      const config = { ...QWEN, moe_intermediate_size: width };
      for (const isTurned of [false, true]) {
        const name = 'model.layers.0.mlp.experts.2.down_proj.weight';
        const [plain, copy] = [openCheckpoint(folder(config)), openCheckpoint(fused(config, isTurned))];
        expect(elementsOf(copy, name)).toEqual(elementsOf(plain, name));
      }
    }
  });

  it('are refused with one line for a tensor that is missing or has another shape', () => {
    const refusal = (config: Json): string => {
      const dir = fused(QWEN, false);
      writeJson(dir, 'config.json', { ...QWEN, ...config });
      return userError(() => openCheckpoint(dir)).message;
    };
    expect(refusal({ num_experts: 4 })).toContain(
      'model.layers.{0–1}.mlp.experts.gate_up_proj: shape [3, 10, 8], but config.json requires [4, 10, 8]',
    );
    expect(refusal({ moe_intermediate_size: 6 })).toContain(
      'model.layers.{0–1}.mlp.experts.down_proj: shape [3, 8, 5], but config.json requires [3, 8, 6]',
    );
    const partial = fused(QWEN, false, (name) => name.replace('1.mlp.experts.down_proj', '1.mlp.experts.down'));
    expect(userError(() => openCheckpoint(partial)).message).toContain(
      'model.layers.{1}.mlp.experts.down_proj: missing',
    );
  });

  it('that are separate are refused for one that is missing, or larger than others', () => {
    const dir = folder(QWEN);
    writeJson(dir, 'config.json', { ...QWEN, num_experts: 4 });
    expect(userError(() => openCheckpoint(dir)).message).toContain(
      'model.layers.{0–1}.mlp.experts.3.gate_proj.weight: missing',
    );
    const shapes = describeModel(QWEN, 'config.json').tensors.map(
      ({ name, shape }) => [name, name.includes('0.mlp.experts.1.up_proj') ? [6, 8] : shape] as const,
    );
    const { header, size } = layOut(shapes);
    writeJson(dir, 'config.json', QWEN);
    writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
    expect(userError(() => openCheckpoint(dir)).message).toContain(
      'model.layers.{0}.mlp.experts.1.up_proj.weight: shape [6, 8], but config.json requires [5, 8]',
    );
  });
});
