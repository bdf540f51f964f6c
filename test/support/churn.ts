/**
 * Requests that come and go at random: readers that are slow, leave, throw or never read, cancels, signals, deadlines,
 * priorities, several continuations, stops that readers find. Whatever happens, what a request got is the beginning of
 * what it gets alone.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { type Drafter, drafterOf } from '../../draft/drafter.js';
import type { Engine } from '../../engine/engine.js';
import type { RequestHandle } from '../../engine/handle.js';
import type { EngineRequest, Generated, ResultOf } from '../../engine/request.js';
import { pick, type Random } from '../fuzz/mutate.js';

/** What may be asked of one of the models, again and again. */
export type Asked = EngineRequest & { readonly model: string };

/** What a request gave, or why nothing. */
type Outcome = ResultOf[keyof ResultOf] | Error;

export const outcomeOf = async (handle: RequestHandle): Promise<Outcome> =>
  handle.result().catch((error: unknown) => error as Error);

export interface ChurnOptions {
  readonly random: Random;
  readonly asked: readonly Asked[];
  /** Requests in all, and most at a time. */
  readonly count: number;
  readonly atOnce: number;
  /** What the request gives by itself. */
  readonly alone: (asked: Asked) => Promise<Outcome>;
  /** Milliseconds after which deadlines come, at most. */
  readonly maxDeadline?: number;
  /** Called before each request. */
  readonly between?: () => void;
}

export interface ChurnCounts {
  /** Requests whose every result is whole, that ended early, and that failed. */
  whole: number;
  early: number;
  failed: number;
  /** Signals that requests had. */
  readonly signals: AbortSignal[];
}

/** Sends requests to an engine, some at a time, and compares what they give. Throws where that is something else. */
export async function churn(engine: Engine, options: ChurnOptions): Promise<ChurnCounts> {
  const { random, asked, count, atOnce, alone, maxDeadline = 20, between } = options;
  const counts: ChurnCounts = { whole: 0, early: 0, failed: 0, signals: [] };
  let left = count;
  let shared = new AbortController();
  const one = async (): Promise<void> => {
    between?.();
    const own = pick(random, asked);
    if (counts.signals.length === 0 || random() < 0.05) counts.signals.push((shared = new AbortController()).signal);
    const { signal } = shared;
    const controller = shared;
    const handle = engine.submit({
      ...own,
      ...(random() < 0.15 && !('guide' in own) ? { drafts: proposing(await alone(own), random) } : {}),
      priority: Math.floor(random() * 3) - 1,
      ...(random() < 0.3 ? { maxHeld: 1 + Math.floor(random() * 4) } : {}),
      ...(random() < 0.2 ? { deadline: random() < 0.5 ? 0.1 + random() * maxDeadline : NEVER } : {}),
      ...(random() < 0.3 ? { signal } : {}),
    });
    const cuts = await disturb(handle, random, () => controller.abort());
    const outcome = await outcomeOf(handle);
    compare(own, outcome, await alone(own), cuts, counts);
  };
  const lane = async (): Promise<void> => {
    try {
      while (left-- > 0) await one();
    } catch (error) {
      left = 0;
      throw error;
    }
  };
  const lanes = await Promise.allSettled(Array.from({ length: atOnce }, lane));
  for (const each of lanes) if (each.status === 'rejected') throw each.reason;
  return counts;
}

/** Proposes what comes, and sometimes something else. */
const proposing = (outcome: Outcome, random: Random): Drafter =>
  drafterOf((tokens) => {
    const [text] = outcome instanceof Error ? [] : outcome;
    if (text === undefined || !isGenerated(text)) return [tokens.at(-1)!];
    const all = text.tokens.map(({ token }) => token);
    const last = all.lastIndexOf(tokens.at(-1)!);
    return all.slice(last + 1).map((token) => (random() < 0.8 ? token : 1));
  });

/** Milliseconds to a deadline that no request meets. */
const NEVER = 3_600_000;

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await nextTurn();
};

/** Reads a request in one of many ways. Returns after how many tokens its continuations were cut. */
async function disturb(handle: RequestHandle, random: Random, abort: () => void): Promise<ReadonlyMap<number, number>> {
  const cuts = new Map<number, number>();
  const way = random();
  if (way < 0.35) return cuts;
  if (way < 0.5) {
    await turns(Math.floor(random() * 12));
    handle.cancel();
    if (random() < 0.3) handle.cancel();
    return cuts;
  }
  if (way < 0.53) {
    await turns(Math.floor(random() * 5));
    abort();
    return cuts;
  }
  const [leaves, throws, stops] = [random() < 0.25, random() < 0.15, random() < 0.3];
  const most = Math.floor(random() * 12);
  const seen = new Map<number, number>();
  let events = 0;
  const take = async ({ kind, sample }: { readonly kind: string; readonly sample: number }): Promise<void> => {
    events++;
    if (kind === 'token') seen.set(sample, (seen.get(sample) ?? 0) + 1);
    if (stops && kind === 'token' && seen.get(sample) === most && !cuts.has(sample)) {
      cuts.set(sample, most);
      handle.cut(sample, most, 'stop');
    }
    if (random() < 0.15) await turns(Math.floor(random() * 6));
  };
  if (way < 0.7) {
    for (let batch = await handle.read(); batch.length > 0; batch = await handle.read())
      for (const event of batch) if (!cuts.has(event.sample)) await take(event);
    return cuts;
  }
  try {
    for await (const event of handle) {
      await take(event);
      if (leaves && events > most) break;
      if (throws && events > most) throw new Error('a reader that throws');
    }
  } catch (error) {
    if (!(throws && (error as Error).message === 'a reader that throws')) throw error;
  }
  return cuts;
}

const isGenerated = (each: object): each is Generated => 'tokens' in each && 'reason' in each;
const EARLY: ReadonlySet<string> = new Set(['aborted', 'deadline', 'stop']);

function compare(
  asked: Asked,
  got: Outcome,
  alone: Outcome,
  cuts: ReadonlyMap<number, number>,
  counts: ChurnCounts,
): void {
  const refuse = (what: string): never => {
    throw new Error(`${what}: ${JSON.stringify({ asked, got, alone, cuts: [...cuts] }, withErrors)}`);
  };
  if (got instanceof Error) {
    counts.failed++;
    // Devices that end may take a request with them that meets three of those.
    if (/its steps ended 3 devices/.test(got.message)) return;
    if (!(alone instanceof Error) || alone.message !== got.message) refuse('a request failed');
    return;
  }
  if (alone instanceof Error) {
    // Only what ended early does not meet what fails.
    const isEarly = got.length === 0 || got.every((each) => !isGenerated(each)) || got.some(endedEarly);
    if (!isEarly) refuse('a request did not fail');
    counts.early++;
    return;
  }
  if (asked.kind !== 'generate') {
    if (!got.every((row) => alone.some((each) => isDeepStrictEqual(each, row)))) refuse('rows are others');
    counts[got.length === alone.length ? 'whole' : 'early']++;
    return;
  }
  let isWhole = true;
  got.forEach((each, i) => {
    const [text, wanted] = [each as Generated, alone[i] as Generated];
    const isEarly = endedEarly(text);
    isWhole &&= !isEarly;
    if (!isEarly && text.reason !== wanted.reason) refuse('a text has another end');
    const cut = text.reason === 'stop' ? cuts.get(i) : undefined;
    if (cut !== undefined && text.tokens.length !== cut) refuse('a text was cut elsewhere');
    const expected = isEarly ? wanted.tokens.slice(0, text.tokens.length) : wanted.tokens;
    if (!isDeepStrictEqual(text.tokens, expected)) refuse('a text is another');
  });
  counts[isWhole ? 'whole' : 'early']++;
}

const endedEarly = (each: object): boolean => isGenerated(each) && EARLY.has(each.reason);
const withErrors = (_key: string, value: unknown): unknown => (value instanceof Error ? value.message : value);

/** What each request gives by itself, one after the other, found once. `engineFor`: one with the model of that name. */
export function aloneOn(engineFor: (model: string) => Promise<Engine>): (asked: Asked) => Promise<Outcome> {
  const known = new Map<Asked, Promise<Outcome>>();
  let last: Promise<unknown> = Promise.resolve();
  const compute = async (asked: Asked): Promise<Outcome> => {
    const engine = await engineFor(asked.model);
    const outcome = await outcomeOf(engine.submit(asked));
    await engine.close();
    return outcome;
  };
  return (asked) => {
    let outcome = known.get(asked);
    if (outcome === undefined) known.set(asked, (last = outcome = last.then(() => compute(asked))));
    return outcome;
  };
}
