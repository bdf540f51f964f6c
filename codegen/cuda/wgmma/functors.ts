/**
 * The functors of a Hopper contraction: what gemm/hopperEpilogue.cuh calls for the rows of a segment, for values of
 * rows, and for rows that are complete.
 */
import type { Segment } from '../../../ir/kernel.js';
import { type Functor, functorOf, type Method } from '../text/functor.js';
import { lanePrograms } from '../text/lanePrograms.js';
import { headEpilogue } from '../text/logprob.js';
import type { CudaOperands } from '../text/operands.js';
import { prologueFunctor, segmentName } from '../text/segments.js';
import { loadColumns } from './columnValues.js';
import { FINAL_ROWS_AT_ONCE, type FinalTile, type WgmmaContext } from './config.js';
import { epilogueText } from './epilogue.js';

const linesOf = (text: string): string[] => text.trimEnd().split('\n');

/** The head of a method for a row of a tile. */
const rowHead = (name: string, more = ''): string =>
  `template <class Products> TW_DEVICE void ${name}(\n` +
  `    ${more}int row, int is_stored, int column0, int quad, const float *values, Products &&products) const`;

/** Values of a row that epilogues read: by whole warps, or by threads with a row each. */
export const hopperPrologue = ({ operands, prologue }: WgmmaContext): Functor =>
  prologueFunctor(prologue.ofThread === undefined ? prologue : { ...prologue, text: prologue.ofThread }, operands);

/** The epilogue of a segment. */
export function hopperSegment(context: WgmmaContext, segment: Segment): Functor {
  const { kernel, operands, prologue, segments, finalTile, options, config } = context;
  if (kernel.anchor === 'logprob') return headEpilogue(kernel, operands, prologue);
  const isLast = segment === segments.at(-1);
  const { epilogue, ahead } = epilogueText(context, segment);
  const constants = ahead === undefined ? [] : ['struct Ahead {', ...ahead.declared.map((line) => `  ${line}`), '};'];
  const row: Method = {
    head: ahead === undefined ? rowHead('row') : rowHead('row_ahead', 'Ahead &ahead, '),
    lines: linesOf(epilogue),
  };
  const first: Method[] =
    ahead === undefined
      ? []
      : [{ head: 'TW_DEVICE void load_first(Ahead &ahead, int row, int column0, int quad) const', lines: ahead.load }];
  const remainder: Method[] =
    config.remainderN === 0 || !isLast || finalTile !== undefined
      ? []
      : [
          {
            head: rowHead('remainder_row'),
            lines: linesOf(epilogueText(context, segment, config.remainderN).epilogue),
          },
        ];
  const columns: Method[] =
    config.columnValues === 0
      ? []
      : [
          {
            head:
              'template <int count>\n' +
              'TW_DEVICE void column_values(int column0, int self, float (&held)[count]) const',
            lines: loadColumns(segment, operands, options.tn, 32 * options.epilogueWarps),
          },
        ];
  const final = finalTile === undefined ? undefined : finalMethods(finalTile, operands);
  return functorOf(
    operands,
    segmentName(segment, operands, segments.length === 1),
    [...first, row, ...remainder, ...columns, ...(final?.methods ?? [])],
    [...constants, ...(final?.constants ?? [])],
  );
}

/** Eight columns of a row for each lane, of final tiles. */
function finalMethods(
  { segment: { outputs, columns }, loads }: FinalTile,
  operands: CudaOperands,
): { readonly constants: readonly string[]; readonly methods: readonly Method[] } {
  const own = loads.map((operand) => ({ operand, access: { kind: 'element' } as const }));
  const acc = (): string => 'float2{ products[2 * pair_], products[2 * pair_ + 1] }';
  const text = lanePrograms({ outputs, loads: own, atOnce: FINAL_ROWS_AT_ONCE, acc, owner: 'loaded.' }, operands);
  return {
    constants: [
      `static constexpr int stored_columns = ${columns};`,
      'struct Loaded {',
      ...text.declared.map((line) => `  ${line}`),
      '};',
    ],
    methods: [
      {
        head: 'TW_DEVICE void load(Loaded &loaded, int i, int row, int first) const',
        lines: text.load,
      },
      {
        head:
          'TW_DEVICE void final_row(Loaded &loaded, int i, const float (&products)[8], int row, int first,\n' +
          '    int lane, bool is_stored) const',
        lines: [...text.words, ...text.row, ...text.program, ...text.store],
      },
    ],
  };
}

/** Rows that a warp finishes beyond its share, so that rows which wait become fewer. */
const MORE = 2;

/** What is done to complete rows; nothing: an empty struct of the header. */
export function finishFunctor({ finish, kernel, operands, schedule, options }: WgmmaContext): Functor {
  if (finish === undefined || kernel.anchor !== 'gemm') return { text: '', instance: 'NoFinish{}' };
  const share = Math.ceil((schedule.tm * schedule.tn) / kernel.segments[0]!.columns / options.epilogueWarps);
  const parameters = `unsigned &finishing, int ${kernel.rows}`;
  return functorOf(operands, 'Finish', [
    {
      head: 'TW_DEVICE void stored(int block, int share) const',
      lines: linesOf(finish.stored('block', 'share')),
    },
    { head: `TW_DEVICE void take_some(${parameters}) const`, lines: linesOf(finish.some(share + MORE)) },
    { head: `TW_DEVICE void take_rest(${parameters}) const`, lines: linesOf(finish.rest(true)) },
  ]);
}
