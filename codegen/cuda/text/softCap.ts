/** Soft caps in CUDA: cap·tanh(x / cap), by one function that is printed where a kernel has a cap. */
import { floatLiteral } from './literals.js';
import { render } from './templates.js';

/** The argument of tw_bounded for each unit of x / cap. */
export const BOUNDED_UNIT = 2 * Math.LOG2E;

/** The function that expressions of capText call; nothing without a cap. */
export const capFunctions = (cap: number | undefined): string => (cap === undefined ? '' : render('softCap', {}));

/** What stands before and after a C expression x, so that both make cap·tanh(x / cap) of it; nothing without a cap. */
export const capText = (cap: number | undefined): { readonly capOpen: string; readonly capClose: string } =>
  cap === undefined
    ? { capOpen: '', capClose: '' }
    : {
        capOpen: `tw_mul(${floatLiteral(cap)}, tw_bounded(tw_mul(${floatLiteral(BOUNDED_UNIT / cap)}, `,
        capClose: ')))',
      };
