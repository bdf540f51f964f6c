/**
 * Fuzzers by name: `npm run fuzz -- NAME --seconds 600` runs one for a long time, fuzz.test.ts runs all of them for a
 * moment. To add one, write a file beside this one that exports a Fuzzer, and list it here.
 */
import { addon } from './addon.js';
import { datasets, journals, merges, tuning } from './answers.js';
import { artifacts, graphs } from './artifacts.js';
import { comparisons } from './comparisons.js';
import { gguf } from './gguf.js';
import { models } from './models.js';
import type { Random } from './mutate.js';
import { pythonJson } from './pythonJson.js';
import { quantized } from './quantized.js';
import { tasks } from './tasks.js';
import { tokenizers } from './tokenizers.js';

export interface Fuzzer {
  /** What receives the hostile input. */
  readonly about: string;
  /** Rounds that the test suite runs: a few seconds. */
  readonly rounds: number;
  /** Tries one input. Throws if the program did not refuse it as it should. */
  readonly round: (random: Random) => void | Promise<void>;
}

export const FUZZERS: Readonly<Record<string, Fuzzer>> = {
  models,
  pythonJson,
  gguf,
  quantized,
  graphs,
  artifacts,
  datasets,
  journals,
  merges,
  comparisons,
  tuning,
  tasks,
  tokenizers,
  addon,
};
