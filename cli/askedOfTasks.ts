/** Values of the flags of `run --tasks` that are more than a word: seeds, documents, settings of generation. */
import { readFileSync } from 'node:fs';
import { UsageError } from '../errors.js';
import { literalEval } from '../python/literal.js';
import { type Dict, Float, type PyValue } from '../python/value.js';
import { isRecord } from '../system/json.js';
import { type Seeds, SEEDS } from '../tasks/requests/seeds.js';

const MAX_FILE = 64 << 20;
const MAX_SEED = 2 ** 32;

/**
 * One for all, or those of Python, NumPy, PyTorch and the examples; the last may be left out. NumPy's may be None: the
 * others are drawn from, and without a seed no run is like another.
 */
export function parseSeeds(given: string): Seeds {
  const all = Object.values(SEEDS) as readonly number[];
  const parts = given.split(',').map((part) => part.trim());
  const hasNumpy = parts.length === 1 || !/^none$/i.test(parts[1] ?? '');
  const numbers = parts.map((part, i) =>
    i === 1 && !hasNumpy ? 0 : /^\d{1,10}$/.test(part) && Number(part) < MAX_SEED ? Number(part) : NaN,
  );
  if (![1, 3, 4].includes(parts.length) || numbers.some(Number.isNaN))
    throw new UsageError(
      `--seed ${given}: expected one whole number, or four of Python, NumPy, PyTorch and the examples`,
      `for example: --seed ${all.join(',')}, which is the default`,
    );
  const [python, numpy, torch, fewshot] = parts.length === 1 ? [1, 2, 3, 4].map(() => numbers[0]!) : numbers;
  return { python: python!, numpy: hasNumpy ? numpy! : null, torch: torch!, fewshot: fewshot ?? SEEDS.fewshot };
}

const EXAMPLE = `for example: --samples '{"arc_easy": [0, 3, 10]}', or a file with that`;

/** JSON, or a file with it: numbers of documents by the names of tasks. */
export function parseSamples(given: string): ReadonlyMap<string, ReadonlySet<number>> {
  const fail = (problem: string): UsageError => new UsageError(`--samples: ${problem}`, EXAMPLE);
  let parsed: unknown;
  try {
    const written = given.trimStart().startsWith('{') ? given : readFileSync(given, 'utf8');
    if (written.length > MAX_FILE) throw new Error('more than 64 MiB');
    parsed = JSON.parse(written);
  } catch (error) {
    throw fail(error instanceof Error ? error.message.split('\n')[0]!.slice(0, 200) : 'cannot be read');
  }
  if (!isRecord(parsed)) throw fail('expected lists of numbers by the names of tasks');
  return new Map(
    Object.entries(parsed).map(([task, numbers]) => {
      const isSound = (each: unknown): each is number => Number.isSafeInteger(each) && Number(each) >= 0;
      if (!Array.isArray(numbers) || numbers.length === 0 || numbers.length > 1e6 || !numbers.every(isSound))
        throw fail(`${task}: expected a list of whole numbers from 0`);
      return [task, new Set(numbers)] as const;
    }),
  );
}

const fromJson = (value: unknown): PyValue => {
  if (Array.isArray(value)) return value.map(fromJson);
  if (isRecord(value)) return new Map(Object.entries(value).map(([key, item]) => [key, fromJson(item)]));
  return typeof value === 'number' && !Number.isInteger(value) ? new Float(value) : (value as PyValue);
};

/** A value as the harness reads it: true, false, a number, a Python literal, else text. */
function valueOf(written: string): PyValue {
  if (/^(true|false)$/i.test(written)) return written.toLowerCase() === 'true';
  if (/^none$/i.test(written)) return null;
  if (/^[-+]?\d{1,15}$/.test(written)) return Number(written) + 0;
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(written)) return new Float(Number(written));
  try {
    return literalEval(written);
  } catch {
    return written;
  }
}

/** `temperature=0.7,top_p=0.9`, commas within brackets and quotes belong to a value; or a JSON object. */
export function parseGeneration(given: string): Dict {
  const example = 'for example: --gen_kwargs do_sample=true,temperature=0.7,max_gen_toks=512';
  if (given.trimStart().startsWith('{')) {
    try {
      return fromJson(JSON.parse(given)) as Dict;
    } catch (error) {
      throw new UsageError(`--gen_kwargs: no JSON: ${error instanceof Error ? error.message : ''}`, example);
    }
  }
  const pairs = given.match(/(?:\[[^\]]*\]|"[^"]*"|'[^']*'|[^,])+/g) ?? [];
  return new Map(
    pairs.map((pair) => {
      const [, key, value] = /^\s*(\w+)=(.*)$/s.exec(pair) ?? [];
      if (key === undefined || value === undefined)
        throw new UsageError(`--gen_kwargs ${given}: ${pair}: expected a name, = and a value`, example);
      return [key, valueOf(value)] as const;
    }),
  );
}
