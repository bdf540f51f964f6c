/** Reads the result of a problem that was written before: journals and samples are untrusted. */
import { z } from 'zod';
import type { StepEnd } from './path.js';
import type { Fate, ProblemResult } from './result.js';

const ENDS = ['step', 'eos', 'other-eos', 'length', 'context'] as const satisfies readonly StepEnd[];
const FATES = [
  'pruned',
  'duplicate',
  'survives',
  'completed',
  'unfinished',
  'failed',
] as const satisfies readonly Fate[];

const MAX_STEPS = 1 << 23;
const MAX_CANDIDATES = 1 << 20;
const MAX_NOTES = 10_000;

const whole = z.int().min(0);
const number = z.number();
const line = z.string().max(10_000);

const treeStep = z.strictObject({
  parent: whole.nullable(),
  iteration: whole,
  subtree: whole.exactOptional(),
  text: z.string(),
  tokens: whole,
  end: z.enum(ENDS),
  ahead: z.string().exactOptional(),
  scores: whole.exactOptional(),
  last: number.exactOptional(),
  aggregate: number.exactOptional(),
  fate: z.enum(FATES),
  error: line.exactOptional(),
});

const candidate = z.strictObject({
  text: z.string(),
  step: whole,
  isCompleted: z.boolean(),
  scores: z.array(number),
  aggregate: number,
  tokens: whole,
});

const schema = z.strictObject({
  tree: z.array(treeStep).max(MAX_STEPS),
  candidates: z.array(candidate).max(MAX_CANDIDATES),
  picked: whole.nullable(),
  drawnSteps: whole,
  drawnTokens: whole,
  notes: z.array(line).max(MAX_NOTES),
});

/** Undefined for what is no result: a wrong type, a step before its parent, a pick that there is not. */
export function readResult(value: unknown): ProblemResult | undefined {
  const parsed = schema.safeParse(value);
  if (!parsed.success) return undefined;
  const { tree, candidates, picked } = parsed.data;
  const isTree = tree.every(({ parent }, i) => parent === null || parent < i);
  const hasPaths = candidates.every(({ step }) => step < tree.length);
  return isTree && hasPaths && (picked === null || picked < candidates.length) ? parsed.data : undefined;
}
