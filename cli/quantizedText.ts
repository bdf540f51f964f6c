/** What of a checkpoint is quantized, how, and what is not. */
import type { WeightDecl } from '../ir/kernel.js';
import { isCodeFormat } from '../ir/storage.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { TensorLocation } from '../models/model/tensors.js';
import { keptGroups } from '../models/quantized/compressedTensors.js';
import { counted, percent } from '../system/text.js';

/** Names of matrices that are shown. */
const SHOWN = 4;

const elementsOf = ({ shape }: TensorLocation): number => shape.reduce((product, extent) => product * extent, 1);

/** Rows of a table, with their first column; none for a checkpoint of floats alone. */
export function describeQuantized({ quantized, tensors }: Checkpoint): readonly (readonly [string, string])[] {
  if (quantized === undefined) return [];
  const all = [...tensors.values()];
  const total = all.reduce((sum, tensor) => sum + elementsOf(tensor), 0);
  const floats = all.filter((tensor) => tensor.kind !== 'encoded' && tensor.shape.length > 1);
  const names = [...new Set(floats.map(({ name }) => name.replace(/\.weight$/, '').replace(/\.\d+\./g, '.{i}.')))];
  const more = names.length > SHOWN ? `, and ${names.length - SHOWN} more` : '';
  const lines = [
    ...[...quantized.schemes].map(
      ([scheme, { matrices, elements }]) =>
        `${counted(matrices, 'matrix', 'matrices')}: ${scheme} (${percent(elements / total)} of the parameters)`,
    ),
    ...(quantized.schemes.size === 0 ? ['no matrix, though config.json says so'] : []),
    `matrices of floats: ${names.length === 0 ? 'none' : `${names.slice(0, SHOWN).join(', ')}${more}`}`,
    ...(quantized.scales.size === 0
      ? []
      : [`not used: ${counted(quantized.scales.size, 'scale')} of activations or caches`]),
  ];
  return lines.map((line, i) => [i === 0 ? 'quantized' : '', line]);
}

const LAYER = /(?:^|\.)(?:layers|h|blocks)\.(\d+)\./;

/** `0–1, 6–7`. */
function ranges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const starts = sorted.filter((n) => !sorted.includes(n - 1));
  const ends = sorted.filter((n) => !sorted.includes(n + 1));
  return starts.map((first, i) => (first === ends[i] ? `${first}` : `${first}–${ends[i]!}`)).join(', ');
}

/** Which layers' matrices are multiplied as codes of 8 bits, and which matrices are not; none where all are floats. */
export function describeNarrow(weights: readonly WeightDecl[]): readonly (readonly [string, string])[] {
  const matrices = weights.filter(({ layout }) => layout !== 'rows');
  const tensorsOf = (isCodes: boolean): readonly string[] =>
    matrices
      .filter(({ format }) => isCodeFormat(format) === isCodes)
      .flatMap(({ sources }) => sources.map(({ tensor }) => tensor));
  const layersOf = (tensors: readonly string[]): readonly number[] =>
    tensors.flatMap((tensor) => {
      const [, layer] = LAYER.exec(tensor) ?? [];
      return layer === undefined ? [] : [Number(layer)];
    });
  const codes = tensorsOf(true);
  if (codes.length === 0) return [];
  const floats = tensorsOf(false);
  const [narrow, wide] = [layersOf(codes), layersOf(floats)];
  const others = floats.filter((tensor) => !LAYER.test(tensor)).map((tensor) => tensor.replace(/\.weight$/, ''));
  const kept = [...(wide.length === 0 ? [] : [`of layers ${ranges(wide)}`]), ...new Set(others)];
  return [
    ['8 bits', `${counted(codes.length, 'matrix', 'matrices')}, of layers ${ranges(narrow)}`],
    [
      matrices.some(({ layout }) => layout === 'kmajor') ? '16 bits' : 'floats',
      kept.length === 0 ? 'none' : kept.join(', '),
    ],
  ];
}

/** Why matrices that are stored in 4 bits are not multiplied so; none where all are, or there are no such. */
export function describeDecoded(
  { tensors }: Pick<Checkpoint, 'tensors'>,
  arithmetic: string,
): readonly (readonly [string, string])[] {
  const isStored = (tensor: TensorLocation): boolean =>
    tensor.kind === 'encoded' && tensor.encoding.kind === 'codes' && tensor.encoding.codes.type === 'u4';
  const stored = new Map([...tensors].filter(([, tensor]) => isStored(tensor)));
  const { groups, decoded } = keptGroups(stored);
  const others = stored.size - groups.size - [...decoded.values()].reduce((sum, each) => sum + each, 0);
  const reasons: (readonly [number, string])[] = [
    ...(arithmetic.startsWith('int4')
      ? []
      : [[groups.size, 'only --quantize int4 on Hopper (sm_90a) multiplies 4 bits'] as const]),
    ...[...decoded].map(([reason, matrices]) => [matrices, reason] as const),
    [others, 'outside of layers'],
  ];
  return reasons
    .filter(([matrices]) => matrices > 0)
    .map(([matrices, reason], i) => [
      i === 0 ? 'decoded' : '',
      `${counted(matrices, 'matrix', 'matrices')} of 4 bits: ${reason}`,
    ]);
}
