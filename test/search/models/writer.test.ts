/** Steps of a real generator: a path that is written step by step is the text that is drawn at once. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EngineWriter, type WriterModel, type WriterOptions } from '../../../search/models/writer.js';
import { extend, type Path, rootOf, type Step, stepsOf } from '../../../search/path.js';
import type { StepAsk } from '../../../search/ports.js';
import { isBuilt, ROOT } from '../../e2e/support.js';
import { SearchEngine, stubEnvironment } from './searchEngine.js';

const NEVER = new AbortController().signal;
const PROBLEM = { id: '0', problem: 'The cat sat on the mat.' };

const askOf = (path: Path, more: Partial<StepAsk> = {}): StepAsk => ({
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

describe.skipIf(!isBuilt)('steps of a generator', () => {
  const engine = new SearchEngine();
  let model: WriterModel;
  beforeAll(async () => {
    stubEnvironment();
    model = await engine.writer(join(ROOT, 'models', 'demo'));
  });
  afterAll(() => engine.close());
  const writerOf = (options: WriterOptions): EngineWriter => new EngineWriter(model, { system: 'none', ...options });

  const written = async (options: WriterOptions, steps: number, seed?: number): Promise<readonly Step[]> => {
    const writer = writerOf(options);
    let path = rootOf(PROBLEM);
    for (let i = 0; i < steps; i++) {
      const step = await writer.write(askOf(path, { seed }));
      path = extend(path, step);
      if (step.end !== 'step') break;
    }
    return stepsOf(path);
  };
  const wholeOf = async (options: WriterOptions, seed?: number): Promise<Step> =>
    writerOf(options).write(askOf(rootOf(PROBLEM), { toEnd: true, seed }));

  it.each([1, 3, 7])('of %d tokens are the most likely text', async (stepTokens) => {
    const steps = await written({ stepTokens, ignoreEos: true }, 8);
    const whole = await wholeOf({ ignoreEos: true, maxStepTokens: 8 * stepTokens });
    expect(steps.map(({ tokens }) => tokens.length)).toEqual(Array(8).fill(stepTokens));
    expect(steps.flatMap(({ tokens }) => tokens)).toEqual(whole.tokens);
    expect(whole.text.startsWith(steps.map(({ text }) => text).join(''))).toBe(true);
    expect(whole.end).toBe('length');
  });
});
