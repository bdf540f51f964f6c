/** The tensors of GGUF files by the names that families have for them. */
import type { StoredTensor, WholeTensor } from '../family/storedTensors.js';
import { blockOf } from './elementTypes.js';
import type { GgufHeader } from './header.js';
import { EACH, type ModuleNames } from './modules.js';
import { isSetting } from './settings.js';

const LAYER = /^blk\.(\d{1,4})\.(\w+)\.(weight|bias)$/;
/** One expert, as files of Mixtral from 2023 have it. */
const EXPERT = /^blk\.(\d{1,4})\.(ffn_(?:gate|up|down))\.(\d{1,4})\.weight$/;
const TOP = /^(\w+)\.(weight|bias)$/;
/** Matrices in one tensor: experts, or heads with norms of their own. */
const MAX_EACH = 1024;

/** The name of a tensor in Hugging Face checkpoints, with EACH in it where it holds several; undefined if unknown. */
function foreignName(name: string, { model, layers, layer }: ModuleNames): string | undefined {
  const [, at, matrix, expert] = EXPERT.exec(name) ?? [];
  const all = layer[`${matrix}_exps`];
  if (expert !== undefined && all !== undefined) return `${layers}.${at}.${all.replace(EACH, expert)}.weight`;
  const inLayer = LAYER.exec(name);
  const [, number, module = '', kind] = inLayer ?? [undefined, undefined, ...(TOP.exec(name) ?? []).slice(1)];
  const names = inLayer === null ? model : layer;
  if (!Object.hasOwn(names, module)) return undefined;
  return inLayer === null ? `${names[module]}.${kind}` : `${layers}.${number}.${names[module]}.${kind}`;
}

/**
 * The tensors of `headers` by the names of a family; those that it does not know keep their own. A tensor with several
 * matrices becomes one for each.
 */
export function namedTensors(headers: readonly GgufHeader[], names: ModuleNames): ReadonlyMap<string, StoredTensor> {
  const found = new Map<string, StoredTensor>();
  for (const { file, entries } of headers)
    for (const entry of entries) {
      if (isSetting(entry.name)) continue;
      const { offset, byteLength } = entry;
      const name = foreignName(entry.name, names) ?? entry.name;
      const [count = 1, ...shape] = entry.shape;
      if (!name.includes(EACH) || count > MAX_EACH || shape.length === 0) {
        found.set(name, stored({ ...entry, name, file, shape: rowOf(name, entry.shape) }, entry.name));
        continue;
      }
      const bytes = byteLength / count;
      for (let i = 0; i < count; i++) {
        const each = name.replace(EACH, String(i));
        const own = { ...entry, name: each, file, shape, offset: offset + i * bytes, byteLength: bytes };
        found.set(each, stored(own, entry.name));
      }
    }
  return found;
}

/**
 * Matrices of blocks are decoded as F32. Vectors are never stored so: they keep the name of their type. `inFile`: the
 * tensor's name there.
 */
function stored(tensor: WholeTensor, inFile: string): StoredTensor {
  const { name, dtype, shape, file, offset, byteLength } = tensor;
  const block = blockOf(dtype);
  if (block === undefined || shape.length !== 2) return tensor;
  const places = { blocks: { file, offset, byteLength, tensor: inFile } };
  return { name, dtype: 'F32', shape, encoding: { kind: 'blocks', block }, places, hasScalePerPart: false };
}

/** How matrices of blocks are stored, and how many are stored so, with how many elements. */
export function blockSchemes(
  found: ReadonlyMap<string, StoredTensor>,
): ReadonlyMap<string, { readonly matrices: number; readonly elements: number }> {
  const schemes = new Map<string, { matrices: number; elements: number }>();
  for (const tensor of found.values()) {
    if (!('encoding' in tensor) || tensor.encoding.kind !== 'blocks') continue;
    const scheme = `GGUF ${tensor.encoding.block.toUpperCase()}`;
    const { matrices, elements } = schemes.get(scheme) ?? { matrices: 0, elements: 0 };
    const own = tensor.shape.reduce((product, extent) => product * extent, 1);
    schemes.set(scheme, { matrices: matrices + 1, elements: elements + own });
  }
  return schemes;
}

/** Converters leave out dimensions of 1: the gate of a shared expert is a matrix of one row. */
const rowOf = (name: string, shape: readonly number[]): readonly number[] =>
  name.endsWith('.shared_expert_gate.weight') && shape.length === 1 ? [1, ...shape] : shape;

/** The name that a GGUF file has for a family's tensor, for messages. */
export function ggufName(name: string, { model, layers, layer }: ModuleNames): string {
  const inLayer = name.startsWith(`${layers}.`)
    ? /^(\d+)\.(.+)\.(weight|bias)$/.exec(name.slice(layers.length + 1))
    : null;
  const [, number, module, kind] = inLayer ?? [
    undefined,
    undefined,
    ...(/^(.+)\.(weight|bias)$/.exec(name) ?? []).slice(1),
  ];
  const isOf = (foreign: string): boolean =>
    module !== undefined && (foreign === module || foreign === module.replace(/(?<=\.(?:experts|norms)\.)\d+/, EACH));
  const own = Object.entries(inLayer === null ? model : layer).find(([, foreign]) => isOf(foreign))?.[0];
  if (own === undefined) return name;
  return inLayer === null ? `${own}.${kind}` : `blk.${number}.${own}.${kind}`;
}
