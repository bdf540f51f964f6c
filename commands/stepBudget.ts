/**
 * What the tuner's table of calls says of steps: how much of waiting prompts one computes beside texts that are being
 * written, and what those take that continue texts.
 */
import type { CallSeconds } from '../engine/device.js';
import { UserError } from '../errors.js';
import { SCORE, STEP } from '../ir/function.js';
import type { FunctionPlan } from '../ir/plan.js';
import { NEW_TOKENS } from '../ir/stepping.js';
import { readSettings } from '../settings.js';

/** Where nothing was measured: a GPU is busy with as many tokens, and takes well below 100 ms for them. */
const DEFAULT_TOKENS = 2048;
/** A step as small as may be whose rate is this share of the best one: the rest of the rate costs more time. */
const ENOUGH = 0.9;
const MAX_TOKENS = 1 << 16;

type Measured = Pick<FunctionPlan<unknown>, 'interface' | 'bucketSeconds'>;

/** Tokens and seconds of each measured bucket of a function, of those that only continue paths or of the others. */
const measuredCalls = (functions: readonly Measured[], name: string, isDecoding: boolean): readonly CallSeconds[] =>
  (functions.find((fn) => fn.interface.name === name)?.bucketSeconds ?? []).flatMap(({ extents, seconds, run }) => {
    const tokens = extents[NEW_TOKENS];
    return (run !== undefined) !== isDecoding || tokens === undefined || !(seconds > 0) ? [] : [{ tokens, seconds }];
  });

/** Of steps with prompts, else of scores, whose kernels are the same. */
function measuredOf(functions: readonly Measured[]): readonly CallSeconds[] {
  const ofSteps = measuredCalls(functions, STEP, false);
  return ofSteps.length > 0 ? ofSteps : measuredCalls(functions, SCORE, false);
}

/** What steps that continue texts take by their tokens, as far as it was measured; undefined: nothing was. */
export function decodingSeconds({ functions }: { readonly functions: readonly Measured[] }) {
  const found = measuredCalls(functions, STEP, true);
  return found.length === 0 ? undefined : found;
}

/**
 * Most tokens of a step in which texts wait for their next token. More raises the rate at which prompts are computed;
 * fewer shorten the time between two tokens. Throws UserError where TILEWRIGHT_STEP_TOKENS is no such number.
 */
export function stepBudget(
  { functions }: { readonly functions: readonly Measured[] },
  { stepTokens } = readSettings(),
): number {
  if (stepTokens !== undefined) {
    if (!(Number.isInteger(stepTokens) && stepTokens >= 1 && stepTokens <= MAX_TOKENS))
      throw new UserError(
        `TILEWRIGHT_STEP_TOKENS: expected a whole number from 1 to ${MAX_TOKENS}`,
        'export TILEWRIGHT_STEP_TOKENS=512, or unset TILEWRIGHT_STEP_TOKENS',
      );
    return stepTokens;
  }
  const measured = [...measuredOf(functions)].sort((a, b) => a.tokens - b.tokens);
  const best = Math.max(...measured.map(({ tokens, seconds }) => tokens / seconds));
  return measured.find(({ tokens, seconds }) => tokens / seconds >= ENOUGH * best)?.tokens ?? DEFAULT_TOKENS;
}
