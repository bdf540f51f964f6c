/** What a search may be asked: one schema for the command line, the library and the server. */
import { z } from 'zod';
import { above, from, seedNumber, wholeFrom } from '../engine/options.js';
import { MAX_TEMPERATURE } from '../engine/limits.js';

/** `weighted` and `majority` draw as `best-of-n` does, and pick in another way. */
export const METHODS = ['best-of-n', 'weighted', 'majority', 'beam', 'dvts', 'rebase'] as const;
export type Method = (typeof METHODS)[number];

/** How the scores of a path's steps become one number. */
export const AGGREGATES = ['last', 'min', 'prod'] as const;
export type Aggregate = (typeof AGGREGATES)[number];

export const MAX_PATHS = 4096;
export const MAX_ITERATIONS = 1024;
const MAX_STEP_TOKENS = 1 << 16;
const MAX_STOP_CHARACTERS = 100;
const MAX_SYSTEM_CHARACTERS = 100_000;

export const searchFields = {
  method: z.enum(METHODS),
  /** Paths that are kept at a time, or samples. Default 16. */
  n: wholeFrom(1, MAX_PATHS).optional(),
  /** Continuations of each path that survives. Default 4. */
  width: wholeFrom(1, MAX_PATHS).optional(),
  /** Most steps of a path. Default 40. */
  iterations: wholeFrom(1, MAX_ITERATIONS).optional(),
  /** Default 0.8. */
  temperature: from(0, MAX_TEMPERATURE).optional(),
  /** Default 1. */
  topP: from(0, 1).optional(),
  seed: seedNumber().optional(),
  /** Text that ends a step, and is part of it. Default: a blank line. */
  stepStop: z.string().min(1).max(MAX_STOP_CHARACTERS).optional(),
  /** What a generator is told before each problem; `none`: nothing. Default: search-and-learn's words. */
  system: z.string().min(1).max(MAX_SYSTEM_CHARACTERS).optional(),
  /** A step has this many tokens instead, unless the text ends before. */
  stepTokens: wholeFrom(1, MAX_STEP_TOKENS).optional(),
  /** Most tokens of a step, or of a sample that is drawn at once: maxStepTokensOf in plan.ts. Default 2048. */
  maxStepTokens: wholeFrom(1, MAX_STEP_TOKENS).optional(),
  /** Goes on after tokens that end a text. */
  ignoreEos: z.boolean().optional(),
  /** Default `last`. */
  aggregate: z.enum(AGGREGATES).optional(),
  /** Paths are scored, and chosen, after every so many steps. Default 1. */
  every: wholeFrom(1, MAX_ITERATIONS).optional(),
  /** Most likely steps beyond a candidate that its score looks at. Default 0. */
  lookahead: wholeFrom(0, MAX_ITERATIONS).optional(),
  /** Of paths with equal texts the first alone goes on. */
  filterDuplicates: z.boolean().optional(),
  /** Completed paths come best first, instead of in the order of their completion. */
  sortCompleted: z.boolean().optional(),
  /** Of `rebase`: children are divided by softmax(score / this). Default 0.2. */
  rebaseTemperature: above(0, 100).optional(),
  /** Draws no more samples once the vote cannot change. */
  earlyStop: z.boolean().optional(),
  /** Does what search-and-learn does, to the letter, where that is odd. */
  compat: z.enum(['sal']).optional(),
  /** Whether steps are extended while their scores are pending. It changes no result. Default `auto`. */
  speculate: z.enum(['auto', 'on', 'off']).optional(),
};

export const searchSchema = z.strictObject(searchFields);
export type SearchOptions = Readonly<z.infer<typeof searchSchema>>;
