/** Functors of products: their prologue and their segments, as gemm/segments.cuh describes them. */
import type { Segment } from '../../../ir/kernel.js';
import type { RowPrologue } from './contraction.js';
import { type Fragment, fragmentEpilogue } from './fragment.js';
import { type Functor, functorOf, type Method } from './functor.js';
import { pascalCase } from './names.js';
import { type CudaOperands, ELEMENT_TYPES, physicalColumns } from './operands.js';

/** The statements of a printed block, without its braces. */
const inside = (text: string): string[] =>
  text
    .trimEnd()
    .split('\n')
    .slice(1, -1)
    .map((line) => line.replace(/^ {2}/, ''));

/** The prologue of a contraction; NoPrologue where programs need nothing of the row. */
export const prologueFunctor = (prologue: RowPrologue, operands: CudaOperands): Functor =>
  prologue.scalars.length === 0
    ? { text: '', instance: 'NoPrologue{}' }
    : functorOf(
        operands,
        'Prologue',
        [
          {
            head: 'template <class Sums> TW_DEVICE void row(int row, float *values, Sums &&sums) const',
            lines: inside(prologue.text('row', 'values', 'sums', 0)),
          },
        ],
        [
          `static constexpr int row_values = ${prologue.scalars.length}, row_sums = ${prologue.partColumns.length},`,
          `                     row_loads = ${prologue.partColumns.reduce((sum, n) => sum + loadsOf(n), 0)};`,
        ],
      );

/** Registers of a lane that loads of so many parts of a row take at first: RowParts (gemm/rowValues.cuh). */
const loadsOf = (columns: number): number => (columns === 1 ? 1 : 4 * Math.min(4, Math.ceil(columns / 128)));

/** The name of a segment's functor: `Epilogue` of a single one, otherwise after its weight. */
export const segmentName = ({ weight }: Segment, operands: CudaOperands, isAlone: boolean): string =>
  isAlone ? 'Epilogue' : `${pascalCase(operands.nameOf(operands.get(weight)))}Epilogue`;

/** What is the same of a segment in all skeletons: its columns, and its weight. */
export const segmentFunctor = (
  segment: Segment,
  operands: CudaOperands,
  name: string,
  row: Method,
  constants: readonly string[] = [],
): Functor => {
  const weight = operands.get(segment.weight);
  return functorOf(
    operands,
    name,
    [
      {
        head: `TW_DEVICE const ${ELEMENT_TYPES[weight.dtype]} *weight() const`,
        lines: [`return ${operands.nameOf(weight)};`],
      },
      row,
    ],
    [`static constexpr int columns = ${physicalColumns(segment.columns, segment.pairing)};`, ...constants],
  );
};

/** What a skeleton says of the fragments whose rows end by `row` of gemm/segments.cuh. */
export type RowFragment = Pick<Fragment, 'groups' | 'isWhole' | 'given'> &
  Partial<Pick<Fragment, 'holdsWholeHeads' | 'shared'>>;

/** A segment of a product whose rows lie in fragments of a tensor core. */
export const fragmentFunctor = (
  segment: Segment,
  operands: CudaOperands,
  fragment: RowFragment,
  isAlone: boolean,
): Functor =>
  segmentFunctor(segment, operands, segmentName(segment, operands, isAlone), {
    head:
      'template <class Products>\n' +
      '  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,\n' +
      '      const Products &products) const',
    lines: inside(
      fragmentEpilogue(
        segment,
        operands,
        {
          ...fragment,
          row: 'row',
          isStored: 'is_stored',
          prefix: '',
          acc: (group, lane) => `products(${group}, ${lane})`,
          column: 'column0',
          quad: 'quad',
        },
        0,
      ),
    ),
  });
