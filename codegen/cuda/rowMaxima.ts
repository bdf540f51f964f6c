/** The largest values of whole rows: each warp finds that of its columns, and the warps of a row then meet. */
import type { Output } from '../../ir/kernel.js';
import { printScalar } from '../../ir/scalar.js';
import { isRowMaxOf, rowMaxName } from './text/lanePrograms.js';
import type { CudaOperands } from './text/operands.js';

/** Statements around the loop over a row's columns. They find `row`, `lane` and `warp`. */
export interface RowMaxima {
  /** Before the loop: what holds the largest values so far. */
  readonly begin: readonly string[];
  /** Behind it: every lane has them, and memory too. */
  readonly end: readonly string[];
  /** Whether all threads of the block have waited for each other in `end`. */
  readonly hasMet: boolean;
  /** C expressions of the values by printScalar of the programs that read them. */
  readonly given: ReadonlyMap<string, string>;
}

/** `side`: warps that share a row, one or all of the block. */
export function rowMaxima(outputs: readonly Output[], operands: CudaOperands, side: number): RowMaxima {
  const maxima = outputs.filter((output) => isRowMaxOf(output, operands));
  const texts = maxima.map(({ buffer, value }, i) => {
    const most = rowMaxName(i);
    const operand = operands.get(buffer);
    const mark = operands.markOf?.(value) ?? '';
    const stored = `${operands.base(operand)}[(long long)row * ${operand.stride}] = ${most};${mark}`;
    const own = `${most} = tw_block_max(${most}, 32);`;
    const begin = `float ${most} = -tw_inf();`;
    if (side === 1) return { begin: [begin], own: [own], all: [`if (lane == 0) ${stored}`] };
    // Rows take turns at two places, so that no warp writes what another still reads.
    const shared = `${most}of_warps[row & 1]`;
    return {
      begin: [`__shared__ float ${most}of_warps[2][${side}];`, begin],
      own: [own, `if (lane == 0) ${shared}[warp] = ${most};`],
      all: [
        `${most} = tw_block_max(lane < ${side} ? ${shared}[lane] : -tw_inf(), 32);`,
        `if (threadIdx.x == 0) ${stored}`,
      ],
    };
  });
  const hasMet = side > 1 && maxima.length > 0;
  return {
    begin: texts.flatMap(({ begin }) => begin),
    end: [
      ...texts.flatMap(({ own }) => own),
      ...(hasMet ? ['__syncthreads();'] : []),
      ...texts.flatMap(({ all }) => all),
    ],
    hasMet,
    given: new Map(
      maxima.map(({ buffer }, i) => [printScalar({ op: 'rowSum', by: 'max', buffer }), rowMaxName(i)] as const),
    ),
  };
}
