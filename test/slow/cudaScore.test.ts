/**
 * The function score as GPUs run it, over fibres: a log-probability has the same bits in any micro-batch, sharing mode
 * and choice of questions, and those of the function step.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { evaluate } from '../../evaluate/evaluate.js';
import type { Question } from '../../evaluate/question.js';
import type { Scorer } from '../../evaluate/scorer.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { TREE_SHARING, type TreeSharing } from '../../evaluate/tree.js';
import { type Extents, fitsIn } from '../../ir/extents.js';
import { SCORE, STEP } from '../../ir/function.js';
import { linkFunction } from '../../ir/plan.js';
import { type CallArrays, extentsOf } from '../../runtime/call.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { below, randomModel, type RandomModel } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';

const CACHE_TOKENS = 16 * 64;
const folder = mkdtempSync(join(tmpdir(), 'tilewright-score-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** Outputs of a function by name, and the states that it left. */
function call({ plan, tensors }: RandomModel, name: string, inputs: CallArrays): ReadonlyMap<string, Float64Array> {
  const fn = linkFunction(plan, name);
  const sizes: Extents = extentsOf(fn.interface, inputs);
  const bucket = fn.buckets.findIndex(({ extents }) => fitsIn(sizes, extents));
  const states = fn.buffers
    .filter(({ space }) => space === 'state')
    .map((state) => [state.name, new Float64Array(Number(state.rows) * Number(state.columns))] as const);
  const given = fn.interface.inputs.map((input) => [input.buffer, Float64Array.from(inputs[input.name]!)] as const);
  const { values } = emulateModule(fn, {
    sizes,
    inputs: new Map([...given, ...states]),
    tensors,
    schedules: fn.launches.map(({ signature }) => fn.schedules[bucket]![signature]!),
    tokensCapacity: 512,
  });
  return new Map(fn.interface.outputs.map((output) => [output.name, values.get(output.buffer)!]));
}

/** Micro-batches through score, with at most so many tokens each. */
function scorerOf(model: RandomModel, maxTokens: number): Scorer {
  const fn = linkFunction(model.plan, SCORE);
  const capacity = { [SCORE]: fn.capacity.extents };
  return {
    maxTokens,
    maxRows: maxTokens,
    maxKeys: 16 * maxTokens,
    maxLength: 512,
    inFlight: 1,
    replicas: 1,
    devices: 1,
    cost: (tokens) => 100 + tokens,
    score: (batch) => {
      const outputs = call(model, SCORE, scoreInputs(batch, { capacity }));
      return Promise.resolve(
        scoredRows({
          outputs: {
            logProb: Float32Array.from(outputs.get('logProb')!),
            isArgmax: Int32Array.from(outputs.get('isArgmax')!),
          },
        }),
      );
    },
  };
}

/** Questions of which three begin alike. The last has paths longer than a partial result of attention. */
function questionsOf({ vocab }: RandomModel): readonly TokenizedQuestion[] {
  const random = randomSource(11);
  const text = (length: number): number[] => Array.from({ length }, () => below(random, vocab));
  const beginning = text(37);
  return [3, 19, 1, 115].map((own, docId): TokenizedQuestion => {
    const same = text(2);
    return {
      docId,
      context: Int32Array.from([...(docId === 2 ? [] : beginning), ...text(own)]),
      continuations: [[...same, ...text(9)], text(1), [...same, ...text(3 + docId)]].map((ids) => Int32Array.from(ids)),
    };
  });
}

type Scores = readonly (readonly number[])[];

async function score(
  model: RandomModel,
  tokenized: readonly TokenizedQuestion[],
  sharing: TreeSharing,
  maxTokens = 512,
): Promise<Scores> {
  const questions = tokenized.map(({ docId, continuations }): Question => ({
    docId,
    doc: {},
    context: '',
    choices: continuations.map(() => ''),
    gold: 0,
    delimiter: '',
  }));
  const { scores } = await evaluate({ questions, tokenized, sharing, scorer: scorerOf(model, maxTokens) });
  return scores.map(({ ll }) => ll);
}

/** The same sums by one call of step for each choice. */
function step(model: RandomModel, tokenized: readonly TokenizedQuestion[]): Scores {
  return tokenized.map(({ context, continuations }) =>
    continuations.map((continuation) => {
      const tokens = [...context, ...continuation].slice(0, -1);
      const at = Int32Array.from(tokens.keys());
      const rows = at.slice(context.length - 1);
      // Keys lie backwards in the cache.
      const slot = at.map((i) => CACHE_TOKENS - 1 - i);
      const zeros = new Int32Array(rows.length);
      const { logProb } = Object.fromEntries(
        call(model, STEP, {
          tokens: Int32Array.from(tokens),
          position: at,
          slot,
          begin: new Int32Array(tokens.length),
          key: slot,
          row: rows,
          target: continuation,
          inverseTemperature: new Float32Array(rows.length),
          keyLow: zeros,
          keyHigh: zeros,
        }),
      );
      return logProb!.reduce((sum, value) => sum + value, 0);
    }),
  );
}

it('sees that attention by place in the micro-batch has other bits', async () => {
  const model = randomModel(folder, 3, 'bf16', TYPICAL_FACTS.sm_80, { scale: 0.4, mask: 'tree' });
  const questions = questionsOf(model);
  expect(await score(model, questions, 'none')).not.toEqual(await score(model, questions, 'tree'));
});

// 3/3 heads of 128, 4/2 heads of 32, 2/1 heads of 80.
describe.each([
  { seed: 3, dtype: 'bf16' as const },
  { seed: 9, dtype: 'bf16' as const },
  { seed: 8, dtype: 'f16' as const },
])('score over fibres, seed $seed', ({ seed, dtype }) => {
  const model = randomModel(folder, seed, dtype, TYPICAL_FACTS.sm_80, { scale: 0.4, cacheTokens: CACHE_TOKENS });
  const questions = questionsOf(model);
  const wanted = score(model, questions, 'tree');

  it.each(TREE_SHARING)(`has the same bits with sharing %s (${model.name})`, async (sharing) => {
    expect(await score(model, questions, sharing)).toEqual(await wanted);
  });

  it('has the same bits in small micro-batches', async () => {
    expect(await score(model, questions, 'tree', 192)).toEqual(await wanted);
  });

  it('has the same bits for some of the questions', async () => {
    expect(await score(model, questions.slice(1, 3), 'tree')).toEqual((await wanted).slice(1, 3));
  });

  it('has the bits of step', async () => {
    expect(step(model, questions)).toEqual(await wanted);
  });
});
