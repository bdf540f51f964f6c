/**
 * Vectors that epilogues read by column, such as the scales of a weight's rows. Idle warps copy a tile's part of them
 * to shared memory before its epilogue begins: each row of the tile would otherwise wait for the same numbers again,
 * with few loads in flight. Only for products of E4M3, whose epilogues have half the time.
 */
import type { Segment } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf } from '../../../ir/scalar.js';
import type { CudaOperands, Operand } from '../text/operands.js';
import { block } from '../text/statements.js';

/** Buffers of f32 that the segment's programs read by column, each once. */
function columnVectors({ outputs }: Segment, operands: CudaOperands): Operand[] {
  const found = new Map<string, Operand>();
  const visit = (s: Scalar): void => {
    if (s.op === 'load' && s.access.kind === 'column') {
      const operand = operands.get(s.buffer);
      if (operand.dtype === 'f32') found.set(s.buffer, operand);
    }
    childrenOf(s).forEach(visit);
  };
  outputs.forEach(({ value }) => visit(value));
  return [...found.values()];
}

/** Columns of a vector that a tile of `tn` physical columns reads. */
const columnsRead = ({ pairing }: Segment, tn: number): number => (pairing.kind === 'interleave' ? tn / 2 : tn);

/** Floats of a tile's column values: those of the segment that has most. */
export const columnFloats = (segments: readonly Segment[], operands: CudaOperands, tn: number): number =>
  Math.max(0, ...segments.map((segment) => columnVectors(segment, operands).length * columnsRead(segment, tn)));

/**
 * C expression (float2) of a vector's values at a thread's pair of a group of 8, of the tile whose values
 * products.across points to: logical groups if interleaved, otherwise physical ones. Undefined for other buffers.
 */
export function columnValue(
  segment: Segment,
  operands: CudaOperands,
  tn: number,
  buffer: string,
  group: string,
): string | undefined {
  const at = columnVectors(segment, operands).findIndex(({ name }) => name === buffer);
  if (at < 0) return undefined;
  const first = at === 0 ? '' : `${at * columnsRead(segment, tn)} + `;
  return `load2(products.across + ${first}8 * (${group}) + 2 * quad)`;
}

/** C expression (int): logical column of physical column `lying` of a segment. */
function logicalColumn({ pairing }: Segment, lying: string): string {
  if (pairing.kind !== 'rotate') return lying;
  const { headDim, width } = pairing;
  const first = `(${lying} - ${lying} % ${2 * width})`;
  return `${first} - ${first} % ${headDim} / 2 + ${lying} % ${width} + ${lying} / ${width} % 2 * ${headDim / 2}`;
}

/**
 * Statements by which `threads` threads, of which this is number `self`, load the values of the tile at physical column
 * `column0` of the segment into `held`.
 */
export function loadColumns(segment: Segment, operands: CudaOperands, tn: number, threads: number): string[] {
  const width = columnsRead(segment, tn);
  const origin = segment.pairing.kind === 'interleave' ? 'column0 / 2' : 'column0';
  return columnVectors(segment, operands).flatMap((operand, i) => {
    const from = `(${operands.base(operand)})`;
    return [
      '#pragma unroll',
      ...block(`for (int i = 0; i < ${Math.ceil(((i + 1) * width) / threads)}; i++)`, [
        `const int lying_ = ${origin} + self + ${threads} * i - ${i * width};`,
        `const int column_ = ${logicalColumn(segment, 'lying_')};`,
        `if (self + ${threads} * i >= ${i * width} && self + ${threads} * i < ${(i + 1) * width}) ` +
          `held[i] = column_ < ${segment.columns} ? ${from}[column_] : 0.0f;`,
      ]),
    ];
  });
}
