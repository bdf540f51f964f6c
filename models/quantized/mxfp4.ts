/** Matrices of all experts of a layer in 4 bits, as gpt-oss is published. */
import { wordCodes } from '../../ir/encoding.js';
import { MICRO_COLUMNS, MICRO_DEPTH } from '../../ir/microscaled.js';
import type { TensorLocation } from '../model/tensors.js';
import { type QuantizationMethod, type QuantizedMatrix, type QuantizedModule } from './method.js';

// MXFP4, one of the OCP's microscaling formats (version 1.0): 32 neighbours in a row have E2M1 codes and one scale, a
// power of two. `…_blocks` u8 [experts, rows, k / 32, 16] has two codes a byte, the first in its lower half, and
// `…_scales` u8 [experts, rows, k / 32] exponents of E8M0. Modules without such tensors are stored as floats.

/** Elements with a common scale, and the bytes of their codes. */
const [BLOCK, BYTES] = [32, 16];
const [CODES, SCALES] = ['_blocks', '_scales'];

export const mxfp4: QuantizationMethod = {
  names: ['mxfp4'],
  read: () => ({ hasStacks: true, isMicroscaled: true, matrixOf }),
};

/** Tensors that kernels read as they are stored, by name. */
export function microscaledIn(tensors: ReadonlyMap<string, TensorLocation>): ReadonlySet<string> {
  const isStored = (tensor: TensorLocation): boolean => {
    if (tensor.kind === 'random') return tensor.isMicroscaled === true;
    if (tensor.kind !== 'encoded') return false;
    if (tensor.encoding.kind === 'blocks') return tensor.encoding.block === 'mxfp4';
    const { codes, scales, zero } = tensor.encoding;
    return (
      codes.type === 'e2m1' &&
      scales.type === 'e8m0' &&
      scales.blockRows === 1 &&
      scales.blockColumns === MICRO_COLUMNS &&
      zero.kind === 'constant' &&
      zero.value === 0
    );
  };
  return new Set(
    [...tensors].flatMap(([name, tensor]) =>
      isStored(tensor) && (tensor.shape[1] ?? 0) % MICRO_DEPTH === 0 && tensor.shape.length === 2 ? [name] : [],
    ),
  );
}

function matrixOf(module: QuantizedModule): QuantizedMatrix | undefined {
  if (module.get(CODES) === undefined && module.get(SCALES) === undefined) return undefined;
  const { stacked, rows, k } = module;
  if (!module.divides(CODES, BLOCK)) return undefined;
  const grid = [stacked, rows / stacked, k / BLOCK];
  const codes = module.part(CODES, ['U8'], [...grid, BYTES]);
  const scales = module.part(SCALES, ['U8', 'F8_E8M0'], grid);
  if (codes === undefined || scales === undefined) return undefined;
  return {
    scheme: `MXFP4, blocks of ${BLOCK}`,
    encoding: {
      kind: 'codes',
      codes: wordCodes('e2m1', 'row', false),
      scales: { type: 'e8m0', blockRows: 1, blockColumns: BLOCK, isTransposed: false },
      zero: { kind: 'constant', value: 0 },
      hasGroups: false,
    },
    parts: { codes, scales },
  };
}
