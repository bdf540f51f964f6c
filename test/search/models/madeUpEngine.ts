/** A generator and a verifier on made-up devices, with the tokenizer of the demo model, for tests of search/models. */
import { join } from 'node:path';
import { Engine } from '../../../engine/engine.js';
import type { Layout } from '../../../models/heads/layout.js';
import { openTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { type Ask, askOf, type SearchTexts } from '../../../search/asking.js';
import type { JudgeModel } from '../../../search/models/judge.js';
import type { WriterModel } from '../../../search/models/writer.js';
import type { StepAsk } from '../../../search/ports.js';
import { extend, type Path, rootOf, type Step } from '../../../search/path.js';
import { pathModel, type PathModelOptions } from '../../support/pathModel.js';

export const VOCAB = 4096;
export const TOKENIZER = openTokenizer(join(import.meta.dirname, '..', '..', '..', 'models', 'demo'));

export const NEVER: AbortSignal = new AbortController().signal;
export const PROBLEM = { id: '0', problem: 'What is 2 + 2?' };

export const TEXTS: SearchTexts = {
  encodeWritten: (text) => TOKENIZER.encodeWritten(text),
  hasTemplate: false,
  writeTurns: () => Promise.reject(new Error('there is no template')),
};

export const engineOf = (options: PathModelOptions = {}): Engine => {
  const engine = new Engine();
  engine.load('model', { replicas: [pathModel({ vocab: VOCAB, maxLength: 2000, ...options })], vocabSize: VOCAB });
  return engine;
};

export const writerModel = (engine: Engine, more: Partial<WriterModel> = {}): WriterModel => ({
  ask: askOf(engine),
  model: 'model',
  texts: TEXTS,
  detokenizer: TOKENIZER.detokenizer(),
  vocabSize: VOCAB,
  maxLength: Math.min(engine.limitsOf().maxLength, engine.limitsOf().room),
  bos: 1,
  eosTokens: new Set([2]),
  ownEos: 2,
  ...more,
});

/** Writes `role: content.` with line ends between turns, as a template of plain words. */
export async function judgeModel(engine: Engine, layout: Layout, more: Partial<JudgeModel> = {}): Promise<JudgeModel> {
  const idOf = async (text: string): Promise<number> => (await TOKENIZER.encodeWritten(text)).at(-1)!;
  const verdicts = [await idOf('+'), await idOf('-')] as const;
  return {
    ask: askOf(engine),
    model: 'model',
    scoring: { kind: 'verdicts', verdicts },
    maxLength: Math.min(engine.limitsOf().maxLength, engine.limitsOf().room),
    writer: {
      layout,
      verdicts,
      bos: 1,
      pad: undefined,
      encodeWritten: TEXTS.encodeWritten,
      hasTemplate: true,
      writeTurns: async (_, turns) => {
        const text = turns.map(({ role, content }) => `<s>${role}</s>${content.trim()}<unk>`).join('');
        return { text, tokens: await TOKENIZER.encodeWritten(text) };
      },
    },
    ...more,
  };
}

/** Requests that were asked, as they came. */
export function recorded(ask: Ask): { readonly ask: Ask; readonly asked: Parameters<Ask>[0][] } {
  const asked: Parameters<Ask>[0][] = [];
  return {
    asked,
    ask: (request) => {
      asked.push(request);
      return ask(request);
    },
  };
}

export const stepAsk = (path: Path, more: Partial<StepAsk> = {}): StepAsk => ({
  path,
  ahead: [],
  iteration: path.depth,
  candidate: 0,
  seed: undefined,
  toEnd: false,
  isSpeculative: false,
  signal: NEVER,
  ...more,
});

export const stepOf = (text: string, end: Step['end'] = 'step'): Step => ({ text, tokens: [], end });
export const pathOf = (...texts: readonly string[]): Path =>
  texts.reduce((path, text) => extend(path, stepOf(text)), rootOf(PROBLEM));
