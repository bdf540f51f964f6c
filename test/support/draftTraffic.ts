/** Made-up drafters on a device with a clock: how many tokens texts get in a time. */
import type { Drafter } from '../../draft/drafter.js';
import { Engine } from '../../engine/engine.js';
import type { DraftStats } from '../../engine/modelStats.js';
import { CLOCK_VOCAB, type ClockOptions, clockModel, H100_MS, tokenAfter } from './clockModel.js';
import { mix } from './pathModel.js';

export interface Traffic {
  /** Whether a draft for place `at` of text `text` is right. */
  readonly isRight: (text: number, at: number) => boolean;
  /** The chances that the drafter states. Default: none. */
  readonly states?: number;
  /** Whether it proposes anything for a text at a place. Default: always. */
  readonly proposes?: (text: number, length: number) => boolean;
  readonly length?: number;
}

/** Each prompt says in its first token which text it is. */
const drafterOf = ({ isRight, states, proposes = () => true, length = 15 }: Traffic): Drafter => ({
  name: 'made up',
  begin: ({ tokens: [text] }) => ({
    propose: ({ tokens }, most) => {
      if (!proposes(text!, tokens.length)) return { tokens: [] };
      const proposed: number[] = [];
      let last = tokens.at(-1)!;
      while (proposed.length < Math.min(most, length)) {
        const at = tokens.length + proposed.length;
        last = tokenAfter(last, at - 1);
        proposed.push(isRight(text!, at) ? last : (last + 1) % CLOCK_VOCAB);
      }
      return { tokens: proposed, ...(states === undefined ? {} : { chances: proposed.map(() => states) }) };
    },
  }),
});

export interface Rate {
  /** Tokens that texts got in the time. */
  readonly tokens: number;
  readonly drafts: readonly DraftStats[];
  readonly steps: number;
}

/** So many texts at a time, each followed by another, until the clock says `ms`. Throws where a text is not its own. */
export async function tokensIn(
  ms: number,
  device: ClockOptions,
  batch: number,
  traffic: Traffic | 'device' | 'none' = 'none',
): Promise<Rate> {
  let ended: Rate | undefined;
  const controller = new AbortController();
  const { model, now } = clockModel({
    ...device,
    stepMs: (tokens, keys) => {
      if (ended === undefined && now() >= ms) {
        const { writtenTokens, drafts, steps } = engine.statsOf();
        ended = { tokens: writtenTokens, drafts, steps };
        controller.abort();
      }
      return device.stepMs(tokens, keys);
    },
  });
  const engine = new Engine();
  engine.load('model', {
    replicas: [model],
    ...(traffic === 'none' ? {} : { drafts: traffic === 'device' ? {} : { drafter: drafterOf(traffic) } }),
  });
  // Texts and their lengths are the same with drafts and without, so that rates can be compared.
  const lane = async (_: unknown, first: number): Promise<void> => {
    for (let text = first; ended === undefined; text += batch) {
      const prompt = [text, ...Array.from({ length: 4 }, (_each, i) => mix(text, i) % CLOCK_VOCAB)];
      const maxNewTokens = 50 + (mix(text, 3) % 400);
      const { tokens } = await engine.generate({ prompt, maxNewTokens, signal: controller.signal });
      let last = prompt.at(-1)!;
      tokens.forEach(({ token }, i) => {
        if (token !== (last = tokenAfter(last, prompt.length + i - 1))) throw new Error(`text ${text} differs`);
      });
    }
  };
  await Promise.all(Array.from({ length: batch }, lane));
  await engine.close();
  return ended!;
}

/** From 0 to below 1, for each place of each text. */
const shareOf = (text: number, at: number): number => mix(text, at, 5) / 2 ** 32;

/** Each text's drafts are right so often. */
export const rightly = (share: number): Traffic => ({ isRight: (text, at) => shareOf(text, at) < share });

export const TRAFFIC = {
  'nothing is proposed': { isRight: () => true, proposes: () => false },
  'all drafts are wrong': { isRight: () => false },
  'all are wrong, and said to be right': { isRight: () => false, states: 0.99 },
  'all are right': { isRight: () => true },
  'all are right, and said to be wrong': { isRight: () => true, states: 0.01 },
  'drafts are right for 50 tokens, and wrong for 50': { isRight: (_, at) => Math.floor(at / 50) % 2 === 0 },
  'drafts are right for 7 tokens, and wrong for 7': { isRight: (_, at) => Math.floor(at / 7) % 2 === 0 },
  'one text of 16 has right drafts': { isRight: (text) => text % 16 === 3 },
  'one text of 16 has drafts': { isRight: () => true, proposes: (text) => text % 16 === 3 },
  'half of all are right': rightly(0.5),
  'seven of ten are right': rightly(0.7),
} satisfies Record<string, Traffic>;

/** 8 billion weights on an H100; and a model on a CPU, where each row takes time and no step is planned ahead. */
export const H100: ClockOptions = { stepMs: H100_MS, gapMs: 0.4 };
export const CPU: ClockOptions = { stepMs: (tokens) => 80 + 6 * tokens, gapMs: 1, feeds: false };
