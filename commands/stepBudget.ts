/** How much of waiting prompts a step computes beside texts that are being written. */
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

/** Tokens per call and seconds of each measured bucket: of steps, else of scores, whose kernels are the same. */
function measuredOf(functions: readonly Measured[]): readonly { readonly tokens: number; readonly seconds: number }[] {
  const of = (name: string) =>
    // Calls of a run only continue paths: they say nothing about prompts.
    (functions.find((fn) => fn.interface.name === name)?.bucketSeconds ?? []).filter(({ run }) => run === undefined);
  const buckets = of(STEP).length > 0 ? of(STEP) : of(SCORE);
  return buckets.flatMap(({ extents, seconds }) => {
    const tokens = extents[NEW_TOKENS];
    return tokens === undefined || !(seconds > 0) ? [] : [{ tokens, seconds }];
  });
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
