/** Options of benchmarks, read from their command lines. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { WeightInit } from '../driver/names.js';
import { UserError } from '../errors.js';
import { packageRoot } from './data.js';

/** Kinds of machine that benchmarks of whole models run on. */
export const BENCH_TARGETS = ['cpu', 'cuda'] as const;
export type BenchTarget = (typeof BENCH_TARGETS)[number];

/** A folder of a config.json: `model` as it is, or one below bench/models. */
export function modelPath(model: string): string {
  const bundled = join(packageRoot(), 'bench', 'models', model);
  return existsSync(bundled) ? bundled : model;
}

/** Weights are made up, except those of a GGUF file. */
export const initOf = (model: string): WeightInit =>
  model.endsWith('.gguf') ? { kind: 'checkpoint' } : { kind: 'random', seed: 1 };

/** Reads the options of `npm run SCRIPT`. Whatever it refuses is a UserError whose hint names the script. */
export class OptionReader {
  readonly hint: string;

  constructor(script: string) {
    this.hint = `look at the options: npm run ${script} -- --help`;
  }

  /** The result of `parseArgs`. */
  parse<T>(parse: () => T): T {
    try {
      return parse();
    } catch (error) {
      throw new UserError(error instanceof Error ? error.message : String(error), this.hint, { cause: error });
    }
  }

  whole(name: string, text: string, least: number, most: number): number {
    return this.checked(name, text, least, most, true);
  }

  number(name: string, text: string, least: number, most: number): number {
    return this.checked(name, text, least, most, false);
  }

  oneOf<T extends string>(name: string, text: string, values: readonly T[]): T {
    const found = values.find((value) => value === text);
    if (found !== undefined) return found;
    throw new UserError(`--${name} ${JSON.stringify(text)}: expected ${values.join(' or ')}`, this.hint);
  }

  private checked(name: string, text: string, least: number, most: number, isWhole: boolean): number {
    const value = Number(text);
    const isValid = text.trim() !== '' && value >= least && value <= most && (!isWhole || Number.isInteger(value));
    if (isValid) return value;
    const expected = isWhole ? 'a whole number' : 'a number';
    throw new UserError(`--${name} ${JSON.stringify(text)}: expected ${expected} from ${least} to ${most}`, this.hint);
  }
}
