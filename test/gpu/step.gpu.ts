/**
 * The function step on a real device: sequences in pieces get the same bits however they are cut, whatever is computed
 * beside them, and whether their keys are computed or found. Their log-probabilities are those of `score`, and close to
 * those of a CPU in f32.
 */
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stepperOf } from '../../driver/commands/continuation.js';
import { scoredRows, scoreInputs } from '../../driver/commands/scorer.js';
import { beginLoading, type LoadedModel } from '../../driver/commands/loadModel.js';
import { Phases } from '../../driver/phases.js';
import type { LoadRequest, Ui } from '../../driver/requests.js';
import { Generator } from '../../generate/generator.js';
import type { Stepper } from '../../generate/stepper.js';
import { SCORE } from '../../ir/function.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { DEMO } from './command.js';
import { archOf } from './launcher.js';
import { compilerOrReason, temporaryFolder } from './support.js';

const arch = archOf(cudaAvailable());
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const skip = typeof compiler === 'string' ? compiler : false;

const ignore = (): void => undefined;
const SILENT: Ui = { phase: ignore, step: ignore, run: ignore, table: ignore, note: ignore, warn: ignore };
const CACHE_TOKENS = 16 * 256;

/** Park–Miller: the same sequences everywhere. */
function randomTokens(seed: number, length: number): number[] {
  let state = seed;
  return Array.from({ length }, () => (state = (state * 48271) % 2147483647) % 500);
}

const SHARED = randomTokens(7, 50);
/** Some begin alike, within a page and past one. */
const SEQUENCES = [
  SHARED,
  [...SHARED, ...randomTokens(3, 70)],
  [...SHARED.slice(0, 37), ...randomTokens(4, 40)],
  randomTokens(5, 1),
  randomTokens(6, 400),
  [...SHARED.slice(0, 5), 9, 9, 9],
];

const demo: Omit<LoadRequest, 'precision'> = { model: DEMO, init: { kind: 'checkpoint' }, threads: 2 };

/** A small model with random weights, whose heads share keys in groups of 7. */
function grouped(): Omit<LoadRequest, 'precision'> {
  const folder = temporaryFolder();
  const config = {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    torch_dtype: 'bfloat16',
    hidden_size: 512,
    intermediate_size: 1024,
    num_hidden_layers: 3,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    head_dim: 128,
    vocab_size: 2000,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: false,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  return { model: join(folder, 'config.json'), init: { kind: 'random', seed: 4 }, threads: 2 };
}

const load = (request: LoadRequest): Promise<LoadedModel> => beginLoading(request, SILENT, new Phases()).finish();

/** Log-probabilities of every token but the first of each sequence, by the function score. */
const scored = ({ executor }: LoadedModel): Promise<number[][]> =>
  Promise.all(
    SEQUENCES.map(async (tokens) => {
      const all = Int32Array.from(tokens, (_, i) => i);
      const batch = {
        tokens: Int32Array.from(tokens),
        position: all,
        subtreeEnd: all.map(() => tokens.length),
        row: all.slice(0, -1),
        target: Int32Array.from(tokens.slice(1)),
      };
      return Array.from(scoredRows(await executor.call(SCORE, scoreInputs(batch, executor))).logProb);
    }),
  );

/** The same by steps of a generator. */
async function stepped(generator: Generator, sequences = SEQUENCES): Promise<number[][]> {
  const all = await Promise.all(
    sequences.map((prompt) => generator.generate({ prompt, maxNewTokens: 0, scoreFrom: 1 })),
  );
  return all.map(({ promptScores }) => promptScores.map(({ logProb }) => logProb));
}

function meanDistance(a: readonly (readonly number[])[], b: readonly (readonly number[])[]): number {
  const differences = a.flatMap((values, i) => values.map((value, j) => Math.abs(value - b[i]![j]!)));
  return differences.reduce((sum, x) => sum + x, 0) / differences.length;
}

/** Gives every token itself: no call begins before the one before it has been read. */
const unfed = (stepper: Stepper): Stepper => ({
  ...stepper,
  limits: { ...stepper.limits, keptRows: 0 },
  step: (inputs) => {
    const none = new Int32Array(inputs.tokens.length);
    return stepper.step({ ...inputs, isFed: none, feed: none, keep: new Int32Array(inputs.row.length).fill(-1) });
  },
});

/** Mean error of a log-probability that 16-bit operands may cause. */
const MOST_ERROR = 0.1;

for (const [name, requestOf] of [
  ['the demo checkpoint', () => demo],
  ['a small model with random weights', grouped],
] as const) {
  describe(`steps of ${name}`, { skip }, () => {
    it('equal each other and score to the bit, and are close to f32', async () => {
      const request = requestOf();
      const model = await load({
        ...request,
        target: 'cuda',
        precision: 'bf16',
        cacheTokens: CACHE_TOKENS,
        feeds: true,
      });
      const stepper = (limits: Partial<Stepper['limits']> = {}, cacheTokens = CACHE_TOKENS): Stepper => {
        const whole = stepperOf(model, cacheTokens, { feeds: true });
        return { ...whole, limits: { ...whole.limits, ...limits } };
      };
      const wanted = await stepped(new Generator(stepper()));
      assert(wanted.flat().every(Number.isFinite));

      const cpu = await load({ ...request, precision: 'f32' });
      const error = meanDistance(wanted, await scored(cpu));
      await cpu.close();
      console.log(`${name}: mean error to f32 on a CPU ${error.toFixed(4)}`);
      assert(error < MOST_ERROR);
      assert.deepEqual(wanted, await scored(model), 'the function score');

      for (const tokens of [1, 7, 16, 100, 1000])
        assert.deepEqual(await stepped(new Generator(stepper({ tokens }))), wanted, `calls of ${tokens} tokens`);

      const generator = new Generator(stepper());
      for (const [i, sequence] of SEQUENCES.entries())
        assert.deepEqual(await stepped(generator, [sequence]), [wanted[i]], `sequence ${i}, beginning from pages`);

      const small = new Generator(stepper({ tokens: 24 }, 16 * 32));
      assert.deepEqual(await stepped(small), wanted, 'where pages are taken away');

      const prompts = SEQUENCES.map((prompt) => prompt.slice(0, 60));
      const generate = (limits: Partial<Stepper['limits']>): Promise<unknown> => {
        const own = new Generator(stepper(limits));
        return Promise.all(prompts.map(async (prompt) => (await own.generate({ prompt, maxNewTokens: 40 })).tokens));
      };
      const together = await generate({});
      assert.deepEqual(await generate({ tokens: 5 }), together, 'continuations in other calls');
      const waiting = new Generator(unfed(stepper()));
      const alone = await Promise.all(
        prompts.map(async (prompt) => (await waiting.generate({ prompt, maxNewTokens: 40 })).tokens),
      );
      assert.deepEqual(alone, together, 'continuations whose calls wait for the tokens of the one before');
      await model.close();
    });
  });
}
