/**
 * A made-up model whose answers depend on every token of a path, and on where its keys lie: each row of its memory has
 * a token and a digest of the path up to it, and a token that sees another path's keys is an error. It draws, filters,
 * keeps drawn tokens and copies pages as a real one does, and may have a function that drafts.
 */
import { SequenceTable, type StepInputs } from '../../driver/devices/sequenceTable.js';
import type { DeviceModel, StepAnswer, StepLimits, StepMessage } from '../../engine/device.js';
import { StateLost } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { isAllowed } from '../../ir/filters.js';
import { maskWords } from '../../ir/sampleInputs.js';
import { type Inputs, type Kept, mix, type RightToken } from './pathDigest.js';
import { type PathAdapterOptions, PathAdapters } from './pathAdapters.js';
import { type PathDraftOptions, PathDrafts } from './pathDrafts.js';
import { PathStates, type PathStateTotals } from './pathStates.js';

export { mix };

export const PATH_VOCAB = 97;
const TOP = 32;

export interface PathModelOptions {
  readonly limits?: Partial<StepLimits>;
  readonly cacheTokens?: number;
  readonly maxLength?: number;
  /** Tokens of its vocabulary. Default: PATH_VOCAB. */
  readonly vocab?: number;
  /** Steps, counted from 0, in which the device ends. */
  readonly lostAt?: ReadonlySet<number>;
  /** Models with another one give other answers. */
  readonly seed?: number;
  /** One path in so many has values that are not finite. Default: none. */
  readonly failsOneIn?: number;
  /** Turns of the event loop that a step takes. Default: one. */
  readonly turns?: () => number;
  /** Slots for adapters of requests. Default: none. */
  readonly adapters?: PathAdapterOptions;
  /** Rows of recurrent states. Default: none, it has none. */
  readonly states?: number;
  /** Its function `draft`. Default: none. */
  readonly draft?: PathDraftOptions;
}

/** Numbers from 0 to below 1. */
export function randomNumbers(seed: number): () => number {
  let count = 0;
  return () => mix(seed, count++) / 2 ** 32;
}

export interface PathModel extends DeviceModel {
  /** Of all steps: new tokens, rows that were copied, and the most filtered rows of one. */
  readonly totals: { steps: number; tokens: number; copied: number; filtered: number };
  /** What its slots were asked to load. */
  readonly slots: PathAdapters | undefined;
  /** Of all calls of its function `draft`. */
  readonly drafted: PathDrafts['totals'];
  /** Of all steps, what they did with rows of states. */
  readonly stated: PathStateTotals;
  table(): SequenceTable;
  /** The next step finds the device gone. */
  lose(): void;
}

export function pathModel({
  limits = {},
  cacheTokens = 4096,
  maxLength = 400,
  vocab = PATH_VOCAB,
  lostAt = new Set(),
  seed = 0,
  failsOneIn = Infinity,
  turns = () => 1,
  adapters,
  states = 0,
  draft,
}: PathModelOptions = {}): PathModel {
  const pages = Math.floor(cacheTokens / PAGE_TOKENS);
  const all: StepLimits = {
    tokens: 200,
    keys: 4096,
    filtered: 64,
    entries: 4096,
    ...(states > 0 ? { states } : {}),
    ...limits,
  };
  let mapped = pages;
  let isLost = false;
  /** The token that is drawn in row `r` behind a path. */
  const rightToken: RightToken = (digest, { inverseTemperature, keyLow, keyHigh }, r) =>
    inverseTemperature[r] === 0
      ? mix(digest, 1) % vocab
      : mix(digest, keyLow[r]!, keyHigh[r]!, Math.round(1e4 * inverseTemperature[r]!)) % vocab;
  const drafts = new PathDrafts({ vocab, seed, rightToken }, draft);
  const rowsOfStates = new PathStates(states);
  const slots = adapters && new PathAdapters(adapters, { isLost: () => isLost, lose: () => (isLost = true) });
  const begin = () =>
    new SequenceTable({
      ...(states > 0 ? { states: { rows: states, tails: 1, hasScans: true } } : {}),
      adapters: slots && { slots: slots.count, slot: -1, inputs: ['adapter', 'rowAdapter'] },
      ...{ pages: mapped, keys: all.keys, maxLength, keptRows: all.keptRows, filters: true },
      draft: draft && { keptRows: drafts.limits.rows, takesFeatures: drafts.ahead === 1 },
      states: states > 0 ? { rows: states, tails: 1, hasScans: true } : undefined,
    });
  let [table, rows, drawn] = [begin(), [] as (Kept | undefined)[], new Map<number, number>()];
  let last: Promise<unknown> = Promise.resolve();
  const totals = { steps: 0, tokens: 0, copied: 0, filtered: 0 };

  /** The digest behind each new token. */
  const write = ({ tokens, isFed, feed, position, slot, begin: firsts, key, adapter }: StepInputs): Kept[] => {
    const made: Kept[] = [];
    tokens.forEach((given, t) => {
      const token = isFed?.[t] === 1 ? drawn.get(feed![t]!)! : given;
      if (!(token >= 0 && token < vocab)) throw new Error(`token ${token}`);
      let digest = slots?.begin(seed, adapter![t]!) ?? seed;
      for (let k = 0; k < position[t]!; k++) {
        const kept = rows[key[firsts[t]! + k]!];
        if (kept === undefined) throw new Error(`token ${t} sees a key that was never written`);
        if (kept.before !== digest) throw new Error(`token ${t} sees another path's key at position ${k}`);
        ({ digest } = kept);
      }
      const before = digest;
      digest = mix(digest, token);
      made.push((rows[slot[t]!] = { token, before, digest }));
      drafts.features[slot[t]!] = digest;
    });
    return made;
  };

  const logProbOf = (digest: number, token: number): number => -Math.fround((mix(digest, token, 7) % 1000) / 100);

  /** The token of a filtered row: it depends on which tokens were counted, and on every filter. */
  const choose = (inputs: Inputs, f: number, { token, digest }: Kept): number => {
    const counts = new Map<number, readonly [number, number]>();
    for (let e = inputs.first![f]!; e < inputs.end![f]!; e++)
      counts.set(inputs.entryToken![e]!, [inputs.entryCount![e]!, inputs.entryBias![e]!]);
    if (inputs.isGenerated![f] === 1) {
      const [count, bias] = counts.get(token) ?? [-1, 0];
      counts.set(token, [Math.max(0, count) + 1, bias]);
    }
    const known = [...counts].filter(([, [count, bias]]) => count >= 0 || bias !== 0).sort(([a], [b]) => a - b);
    const numbers = known.flatMap(([each, [count, bias]]) => [each, count, Number.isFinite(bias) ? 1000 * bias : -1]);
    const { topK, topP, minLogP, repetition, presence, frequency, inverseTemperature, keyLow, keyHigh } = inputs;
    const filters = [topK, topP, minLogP, repetition, presence, frequency, inverseTemperature].map((values) =>
      Math.round(1000 * Math.max(-1e6, Math.min(1e6, values![f]!))),
    );
    let chosen = mix(digest, ...numbers, ...filters, keyLow[f]!, keyHigh[f]!) % vocab;
    const { mask, maskRow } = inputs;
    const words = maskWords(vocab);
    const own = maskRow[f]! < 0 ? undefined : mask.subarray(maskRow[f]! * words, (maskRow[f]! + 1) * words);
    const isOut = (each: number): boolean =>
      counts.get(each)?.[1] === -Infinity || (own !== undefined && !isAllowed(own, each));
    while (isOut(chosen)) chosen = (chosen + 1) % vocab;
    return chosen;
  };

  /** Rows that stand behind other states than keys say are errors. */
  const checkStates = (message: StepMessage, before: ReadonlyMap<number, number>, rows: readonly Kept[]): void => {
    if (states === 0) return;
    const digests = rowsOfStates.step(
      message,
      (part) => slots?.begin(seed, message.adapter?.[part] ?? -1) ?? seed,
      (t) => (message.tokens[t]! < 0 ? before.get(-1 - message.tokens[t]!)! : message.tokens[t]!),
    );
    message.row.forEach((token, r) => {
      if (digests[token] === rows[r]!.digest) return;
      rowsOfStates.totals.errors.push(`row ${r} has the states of another path`);
      throw new Error('states of another path');
    });
  };

  const compute = (inputs: Inputs, message: StepMessage): StepAnswer => {
    const before = drawn;
    const made = write(inputs);
    const failed = Array.from(inputs.row, (token) => mix(made[token]!.digest, 5) / 2 ** 32 < 1 / failsOneIn);
    const behind = Array.from(inputs.row, (token) => made[token]!);
    checkStates(message, before, behind);
    const greedy = ({ digest }: Kept): number => mix(digest, 1) % vocab;
    const next = behind.map(({ digest }, r) => rightToken(digest, inputs, r));
    const filtered = Array.from(inputs.topK ?? [], (_, f) => choose(inputs, f, behind[f]!));
    totals.filtered = Math.max(totals.filtered, filtered.length);
    const kept = new Map<number, number>();
    next.forEach((token, r) => (inputs.keep?.[r] ?? -1) >= 0 && kept.set(inputs.keep![r]!, token));
    filtered.forEach((token, f) => (inputs.keepFiltered?.[f] ?? -1) >= 0 && kept.set(inputs.keepFiltered![f]!, token));
    drawn = kept;
    if (failed.includes(true))
      throw Object.assign(new Error('not finite'), {
        name: 'NonFiniteError',
        rows: failed.flatMap((each, row) => (each ? [row] : [])),
      });
    const top = filtered.flatMap((_, f) =>
      Array.from({ length: TOP }, (_each, i) =>
        i < inputs.topCount[f]! ? (mix(behind[f]!.digest, 3) + i) % vocab : 0,
      ),
    );
    return {
      logProb: Float32Array.from(behind, ({ digest }, r) => logProbOf(digest, inputs.target[r]!)),
      isArgmax: Int32Array.from(behind, (each, r) => (inputs.target[r] === greedy(each) ? 1 : 0)),
      nextToken: Int32Array.from(next),
      nextTokenLogProb: Float32Array.from(next, (token, r) => logProbOf(behind[r]!.digest, token)),
      filtered: {
        token: Int32Array.from(filtered),
        logProb: Float32Array.from(filtered, (token, f) => logProbOf(behind[f]!.digest, token)),
        topTokens: Int32Array.from(top),
        topLogProbs: Float32Array.from(top, (token, i) => logProbOf(behind[Math.floor(i / TOP)]!.digest, token)),
      },
    };
  };

  return {
    totals,
    slots,
    adapters: slots,
    drafted: drafts.totals,
    stated: rowsOfStates.totals,
    draft: draft && drafts,
    limits: all,
    maxLength,
    vocab,
    ...{ maxPages: pages, mappedPages: pages, piecePages: 1, pieceBytes: 0 },
    step: async (message) => {
      const { inputs: given, copies } = table.apply(message);
      const inputs = { ...given, key: given.key.slice() } as Inputs;
      const { isDraft } = message;
      const step = isDraft ? drafts.count(inputs) : totals.steps++;
      if (!isDraft) totals.tokens += inputs.tokens.length;
      slots?.send(message);
      const answer = last.then(async () => {
        for (let left = turns(); left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
        isLost ||= isDraft ? drafts.isLostAt(step) : lostAt.has(step);
        if (isLost) throw new StateLost('gone');
        if (isDraft) return drafts.compute(inputs, step);
        copies?.from.forEach((page, i) => {
          for (let row = 0; row < copies.rows[i]!; row++) {
            rows[copies.to[i]! * PAGE_TOKENS + row] = rows[page * PAGE_TOKENS + row]!;
            drafts.copy(page * PAGE_TOKENS + row, copies.to[i]! * PAGE_TOKENS + row);
            totals.copied++;
          }
        });
        return compute(inputs, message);
      });
      void answer.then(
        () => slots?.done(message),
        () => slots?.done(message),
      );
      last = answer.catch(() => undefined);
      return answer;
    },
    resize: async (count) => {
      await last;
      table.resize(count);
      for (let row = count * PAGE_TOKENS; row < mapped * PAGE_TOKENS; row++) rows[row] = undefined;
      drafts.cut(count * PAGE_TOKENS);
      return (mapped = count);
    },
    recovered: () => {
      [mapped, isLost] = [pages, false];
      [table, rows, drawn] = [begin(), [], new Map()];
      drafts.cut(0);
      rowsOfStates.clear();
      slots?.clear();
      return Promise.resolve();
    },
    isLost: () => isLost,
    lose: () => (isLost = true),
    table: () => table,
  };
}
