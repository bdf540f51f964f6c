/** Which examples a task shows, and how many. */
import { UserError } from '../../errors.js';
import { str } from '../../python/show.js';
import { isDict, isInt, isList, type Dict } from '../../python/value.js';
import type { Documents } from './documents.js';
import type { Source } from './fields.js';
import type { Keys } from './keys.js';
import { Pool } from './pool.js';
import { Sampler } from './sampler.js';

/** Draws the examples of one document after another. */
export interface Shots {
  readonly count: number;
  /** Throws UserError if there are fewer than asked. */
  readonly drawn: (document: Dict) => readonly Dict[];
}

const MAX_SHOTS = 100_000;

/** `shots`: those of the command line; a 0 in the task's file wins. */
export async function shotsOf(
  keys: Keys,
  config: ReadonlyMap<string, Source>,
  documents: Documents,
  scored: string,
  { shots: asked, fewshotSeed }: { readonly shots?: number | undefined; readonly fewshotSeed?: number | undefined },
): Promise<Shots> {
  const written = keys.get('num_fewshot');
  if (written !== null && !isInt(written)) throw new UserError(`${keys.where('num_fewshot')}: expected a whole number`);
  const count = written === null || Number(written) !== 0 ? (asked ?? Number(written ?? 0)) : 0;
  if (!Number.isInteger(count) || count < 0 || count > MAX_SHOTS)
    throw new UserError(`${keys.where('num_fewshot')}: ${count} shots; expected a number up to ${MAX_SHOTS}`);
  const name = config.get('sampler') ?? 'default';
  const where = keys.where('fewshot_config');
  if (name !== 'default' && name !== 'first_n')
    throw new UserError(
      `${where}: no sampler ${typeof name === 'function' ? '' : str(name)}; there are default, first_n`,
    );
  if (count === 0) return { count, drawn: () => [] };

  const split = textOrNull(config.get('split') ?? keys.get('fewshot_split'), where);
  const excludesItself = str(split) === str(keys.get('test_split'));
  const samples = config.get('samples') ?? null;
  const pool = new Pool();
  if (split === null && samples !== null) {
    if (!isList(samples as never)) throw new UserError(`${where}: samples: expected a list`);
    for (const sample of samples as readonly unknown[]) if (isDict(sample)) pool.add(sample);
  } else {
    const from = split ?? keys.text('training_split') ?? keys.text('validation_split') ?? scored;
    // The first ones are enough where the document itself cannot be among them.
    const needed = name === 'first_n' && !excludesItself ? count : Infinity;
    for await (const document of documents.of(from, needed)) pool.add(document);
  }
  const sampler = new Sampler(name, pool, fewshotSeed);
  const drawn = (document: Dict): readonly Dict[] => {
    try {
      return sampler.sample(count, excludesItself ? document : undefined);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new UserError(
        `${keys.at}: ${count} shots asked, but there are ${pool.length} examples: ${error.message}`,
        `Try: --num_fewshot ${Math.max(0, pool.length - (excludesItself ? 1 : 0))}`,
        { cause: error },
      );
    }
  };
  return { count, drawn };
}

function textOrNull(value: Source | null, where: string): string | null {
  if (value === null || typeof value === 'string') return value;
  throw new UserError(`${where}: split: expected the name of a split`);
}
