/**
 * A made-up device with a clock of its own, which goes on while steps are computed and nowhere else: what an engine
 * decides by its clock can be tested. The token after another depends on that and on its position alone.
 */
import { vi } from 'vitest';
import type { DeviceModel, StepAnswer, StepLimits } from '../../engine/device.js';
import { mix } from './pathModel.js';

export const CLOCK_VOCAB = 50_000;

/** The token after `token` at `position`. */
export const tokenAfter = (token: number, position: number): number => mix(token, position, 11) % CLOCK_VOCAB;

export interface ClockOptions {
  /** Milliseconds of a step of so many new tokens whose paths have so many keys. */
  readonly stepMs: (tokens: number, keys: number) => number;
  /** Milliseconds between the answer of a step and the beginning of one that is sent then. */
  readonly gapMs?: number;
  /** Whether steps keep drawn tokens. */
  readonly feeds?: boolean;
  readonly limits?: Partial<StepLimits>;
  /** The model has a function that drafts: its calls take so long, and what is drawn behind a token may be wrong. */
  readonly draft?: { readonly ms: number; readonly isRight: (token: number, position: number) => boolean } | undefined;
}

export interface ClockModel {
  readonly model: DeviceModel;
  /** Milliseconds; performance.now() shows them too. */
  now(): number;
  readonly steps: { readonly tokens: number; readonly ms: number }[];
}

export function clockModel({ stepMs, gapMs = 0, feeds = true, limits = {}, draft }: ClockOptions): ClockModel {
  let now = 0;
  let free = 0;
  const drawn = { step: new Int32Array(0), draft: new Int32Array(0) };
  let last: Promise<unknown> = Promise.resolve();
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const steps: { tokens: number; ms: number }[] = [];
  const model: DeviceModel = {
    limits: { tokens: 8192, keys: 1 << 22, ...(feeds ? { keptRows: 1024 } : {}), ...limits },
    maxLength: 1 << 20,
    draft: draft && { name: 'model', ahead: 0, limits: { tokens: 8192, keys: 1 << 22 } },
    ...{ maxPages: 1 << 17, mappedPages: 1 << 17, piecePages: 1, pieceBytes: 0 },
    step: (message) => {
      const { tokens, from, count, row, isDraft = false } = message;
      const kind = isDraft ? 'draft' : 'step';
      const positions = new Int32Array(tokens.length);
      const given = new Int32Array(tokens.length);
      let [t, keys] = [0, 0];
      const before = drawn[kind];
      from.forEach((first, part) => {
        for (let i = 0; i < count[part]!; i++, t++) {
          positions[t] = first + i;
          given[t] = tokens[t]! < 0 ? before[-1 - tokens[t]!]! : tokens[t]!;
        }
        keys += first + count[part]!;
      });
      const nextToken = Int32Array.from(row, (at) => {
        const right = tokenAfter(given[at]!, positions[at]!);
        return isDraft && !draft!.isRight(given[at]!, positions[at]!) ? (right + 1) % CLOCK_VOCAB : right;
      });
      drawn[kind] = nextToken;
      const start = Math.max(now + gapMs, free);
      const ms = isDraft ? draft!.ms : stepMs(tokens.length, keys);
      const end = (free = start + ms);
      if (!isDraft) steps.push({ tokens: tokens.length, ms });
      const zeros = new Float32Array(row.length);
      const answer: StepAnswer = {
        ...{ logProb: zeros, nextTokenLogProb: zeros, isArgmax: new Int32Array(row.length), nextToken },
      };
      const told = last.then(async () => {
        await new Promise((resolve) => setImmediate(resolve));
        now = Math.max(now, end);
        return answer;
      });
      last = told;
      return told;
    },
    resize: () => Promise.resolve(1 << 17),
  };
  return { model, now: () => now, steps };
}

/** Milliseconds through points (tokens, milliseconds) on straight lines, and in proportion behind the last. */
export function msThrough(points: readonly (readonly [number, number])[]): (tokens: number) => number {
  return (tokens) => {
    const next = points.findIndex(([at]) => at >= tokens);
    const [lastTokens, lastMs] = points.at(-1)!;
    if (next < 0) return (lastMs * tokens) / lastTokens;
    if (next === 0) return points[0]![1];
    const [[a, from], [b, to]] = [points[next - 1]!, points[next]!];
    return from + ((to - from) * (tokens - a)) / (b - a);
  };
}

/** Steps of 8 billion bf16 weights on an H100 (docs/log), prompts of 215 to 512 tokens. */
export const H100_MS = msThrough([
  ...([
    [1, 5.24],
    [8, 5.61],
    [64, 6.84],
    [96, 8.19],
    [128, 8.44],
    [256, 12],
    [384, 16.9],
    [512, 20.2],
  ] as const),
]);
