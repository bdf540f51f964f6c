/** Which matrices of a checkpoint targets may keep in 4 bits, and in groups of how many columns. */
import { groupOf, type GroupSize } from '../../ir/groups.js';
import type { CodesEncoding } from '../../ir/encoding.js';
import { readRange, withFile } from '../../system/read.js';
import type { EncodedTensor, TensorLocation } from '../family/tensors.js';

/** Matrices of layers: their names have a number. The head and embeddings are read in other ways. */
const OF_LAYER = /\.\d+\./;

/** Whether column c is in group c / width, as a list that comes with nearly every file says. */
function isInOrder({ parts, shape }: EncodedTensor, width: number): boolean {
  const place = parts.groups;
  if (place === undefined || place.byteLength !== 4 * shape[1]!) return false;
  const bytes = withFile(place.file, (fd) => readRange(fd, place.offset, place.byteLength));
  for (let column = 0; column < shape[1]!; column++)
    if (bytes.readInt32LE(4 * column) !== Math.floor(column / width)) return false;
  return true;
}

/** Why kernels cannot read these codes; undefined if they can. */
function codesProblem({ codes, scales, zero }: CodesEncoding): string | undefined {
  if (codes.type !== 'u4') return `codes of ${codes.type}`;
  if (scales.blockRows !== 1) return 'scales for several rows';
  if (scales.type !== 'f16' && scales.type !== 'bf16') return `scales of ${scales.type}`;
  if (zero.kind === 'constant')
    return Number.isInteger(zero.value) && zero.value >= 0 && zero.value <= 15 ? undefined : 'another zero point';
  return zero.codes.type === 'u4' ? undefined : 'zero points of other than 4 bits';
}

/** The group of an encoded matrix, or why it has none. */
function groupIn(tensor: EncodedTensor): GroupSize | string {
  const { encoding, shape } = tensor;
  if (encoding.kind !== 'codes') return `blocks of ${encoding.block}`;
  const problem = codesProblem(encoding);
  if (problem !== undefined) return problem;
  const { blockColumns } = encoding.scales;
  const group = groupOf(blockColumns, shape[1]!);
  if (group === undefined) return `groups of ${blockColumns} columns of ${shape[1]}`;
  return encoding.hasGroups && !isInOrder(tensor, blockColumns) ? 'columns ordered by activation' : group;
}

export interface KeptGroups {
  /** By tensor. */
  readonly groups: ReadonlyMap<string, GroupSize>;
  /** Matrices of 4 bits that are decoded to 16, by the reason. */
  readonly decoded: ReadonlyMap<string, number>;
}

/** Reads the order of columns where files say one. */
export function keptGroups(tensors: ReadonlyMap<string, TensorLocation>): KeptGroups {
  const groups = new Map<string, GroupSize>();
  const decoded = new Map<string, number>();
  for (const [name, tensor] of tensors) {
    if (!OF_LAYER.test(name)) continue;
    if (tensor.kind === 'random' && tensor.group !== undefined) groups.set(name, tensor.group);
    if (tensor.kind !== 'encoded') continue;
    const found = groupIn(tensor);
    if (typeof found === 'number') groups.set(name, found);
    else decoded.set(found, (decoded.get(found) ?? 0) + 1);
  }
  return { groups, decoded };
}
