/** How templates of the vocabulary's kernels draw tokens. */
import { partWidth, type LogProbKernel } from '../../../ir/kernel.js';
import { drawOperands } from '../../operands.js';
import type { CudaOperands } from './operands.js';
import { render } from './templates.js';

/** Functions that draw tokens. */
export const gumbelText = (): string => render('gumbel', {});

/** What a template needs of a kernel's draw, and the width of the parts. */
export const drawValues = (
  kernel: Pick<LogProbKernel, 'draw'>,
  operands: CudaOperands,
): { readonly draw: object | undefined; readonly width: number } => ({
  width: partWidth(kernel),
  draw: kernel.draw === undefined ? undefined : { noise: gumbelText(), ...drawOperands(kernel.draw, operands) },
});
