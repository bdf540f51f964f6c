/** Guides that are made up in tests: which tokens may come follows from all that were taken. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { pathTo } from '../../engine/draftTree.js';
import type { TokenGuide, TokenMask } from '../../engine/guide.js';
import { isAllowed } from '../../ir/filters.js';
import { maskWords } from '../../ir/sampleInputs.js';
import { mix } from './pathModel.js';

export interface MadeUpGuide extends TokenGuide {
  /** States that were begun, and that are not closed. */
  readonly counts: { begun: number; open: number; asked: number; looked: number };
  /** What may come behind these tokens of a continuation. */
  maskAfter(tokens: readonly number[]): TokenMask;
}

export interface MadeUpGuideOptions {
  readonly vocab: number;
  readonly seed: number;
  /** One in so many tokens is allowed. Default 6. */
  readonly oneIn?: number;
  /** Turns of the event loop that a mask takes; 0: none, it is there at once. Default 0. */
  readonly turns?: () => number;
  /** Whether masks of these tokens reject. */
  readonly fails?: (tokens: readonly number[]) => boolean;
  /** Whether it says what may come behind drafts. Default: it does. */
  readonly takesDrafts?: boolean;
}

const MASKS = 7;

/** Has seven masks in all, which sequences share. */
export function madeUpGuide({
  vocab,
  seed,
  oneIn = 6,
  turns = () => 0,
  fails = () => false,
  takesDrafts = true,
}: MadeUpGuideOptions): MadeUpGuide {
  const masks = Array.from({ length: MASKS }, (_, i) => {
    const mask = new Uint32Array(maskWords(vocab));
    const allow = (token: number): number => (mask[token >> 5]! |= 1 << (token & 31));
    allow(mix(seed, i) % vocab);
    for (let token = 0; token < vocab; token++) if (mix(seed, i, token) % oneIn === 0) allow(token);
    return mask;
  });
  const maskAfter = (tokens: readonly number[]): TokenMask => masks[mix(seed, ...tokens) % MASKS]!;
  /** Undefined where one of the tokens from the given place on may not come. */
  const maskBehind = (path: readonly number[], from: number): TokenMask | undefined => {
    for (let at = from; at < path.length; at++)
      if (!isAllowed(maskAfter(path.slice(0, at)), path[at]!)) return undefined;
    return fails(path) ? undefined : maskAfter(path);
  };
  const counts = { begun: 0, open: 0, asked: 0, looked: 0 };
  return {
    counts,
    maskAfter,
    begin: () => {
      counts.begun++;
      counts.open++;
      const tokens: number[] = [];
      let isOpen = true;
      const take = (taken: readonly number[]): void => {
        for (const token of taken) {
          if (!isAllowed(maskAfter(tokens), token)) throw new Error(`token ${token} was not allowed`);
          tokens.push(token);
        }
      };
      return {
        next: (...taken) => {
          if (!isOpen) throw new Error('a closed state is asked');
          counts.asked++;
          take(taken);
          const known = [...tokens];
          const answer = (): TokenMask => {
            if (fails(known)) throw new Error('nothing may come');
            return maskAfter(known);
          };
          const wait = turns();
          if (wait === 0) return answer();
          return (async () => {
            for (let i = 0; i < wait; i++) await nextTurn();
            return answer();
          })();
        },
        ...(takesDrafts
          ? {
              ahead: (taken, drafts) => {
                if (!isOpen) throw new Error('a closed state is asked');
                counts.looked++;
                take(taken);
                const known = [...tokens];
                const answer = () =>
                  drafts.tokens.map((_, node) => maskBehind([...known, ...pathTo(drafts, node)], known.length));
                const wait = turns();
                if (wait === 0) return answer();
                return (async () => {
                  for (let i = 0; i < wait; i++) await nextTurn();
                  return answer();
                })();
              },
            }
          : {}),
        close: () => {
          if (!isOpen) throw new Error('a state is closed twice');
          isOpen = false;
          counts.open--;
        },
      };
    },
  };
}
