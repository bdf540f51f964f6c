/**
 * Tokens that are chosen from rows of logits on a real device: those of the float64 reference, the same bits in any
 * company and whether calls overlap or not, and log-probabilities that are those of scoring. The rows of the kernel
 * test are random, with ties, banned tokens and everything far apart.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import type { LoadedModel } from '../../commands/loadModel.js';
import { Engine } from '../../engine/engine.js';
import type { SamplingOptions } from '../../engine/options.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { DeviceModel } from '../../engine/device.js';
import { extentIn } from '../../ir/extents.js';
import { everyExtent } from '../../ir/function.js';
import { rowStride } from '../../ir/plan.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import { put, take } from '../codegen/harness.js';
import { oracleToken, type SampleCase, sampleCases, sampleInputs, sampleSizes } from '../codegen/sampleCases.js';
import { sampleModule } from '../codegen/sampleModule.js';
import { deviceHere } from './device.js';
import { Launcher } from './launcher.js';
import { CACHE_TOKENS, demo, load, loadOnDevice, randomTokens, scoresOf, stepperFor, write } from './sequences.js';

const { arch, skip } = await deviceHere();

const OPTIONS: readonly SamplingOptions[] = [
  { temperature: 1, topP: 0.9 },
  { temperature: 0.8, topK: 40 },
  { temperature: 1.3, minP: 0.02, topK: 200, topP: 0.95 },
  { repetitionPenalty: 1.3 },
  { temperature: 0.9, presencePenalty: 0.5, frequencyPenalty: 0.3 },
  {
    temperature: 1,
    logitBias: [
      [5, -100],
      [17, 2],
    ],
    topLogProbs: 7,
  },
  { temperature: 1 },
  {},
];
const REQUESTS: readonly GenerateRequest[] = Array.from({ length: 200 }, (_, i) => ({
  prompt: randomTokens(100 + i, 3 + ((i * 11) % 40)),
  maxNewTokens: 24,
  sampling: { ...OPTIONS[i % OPTIONS.length], seed: i },
}));

/** The same calls, none of which takes what the one before it has drawn. */
const unfed = (model: DeviceModel): DeviceModel => ({ ...model, limits: { ...model.limits, keptRows: 0 } });

describe('the kernel that chooses tokens', { skip }, () => {
  it('chooses what float64 chooses, of 128,256 tokens, and the same bits of fewer rows', async () => {
    assert(typeof arch === 'string');
    const [vocab, rows, capacity] = [128_256, 40, 8192];
    const module = sampleModule(vocab);
    const kernel = module.kernels[0]!;
    const text = emitCudaKernel(
      kernel,
      module,
      { kind: 'loop', threads: 1024 },
      everyExtent(module.interface, capacity),
    );
    const launcher = new Launcher(arch);
    await launcher.load([text]);
    const cases = sampleCases(vocab, rows);
    const launch = async (some: readonly SampleCase[]): Promise<ReadonlyMap<string, readonly number[]>> => {
      const inputs = sampleInputs(vocab, some);
      const sizes = sampleSizes(inputs);
      const layout = module.buffers.map(({ name, dtype, rows: extent, columns }) => {
        const stride = rowStride(
          module.buffers.find((each) => each.name === name)!,
          everyExtent(module.interface, capacity),
          DTYPE_BYTES[dtype],
        );
        return { name, dtype, count: extentIn(extent, sizes), columns: extentIn(columns, sizes), stride };
      });
      const memory = new Map(
        layout.map(({ name, dtype, count, columns, stride }) => {
          const bytes = Buffer.alloc(Math.max(1, count) * stride * 4);
          inputs.get(name)?.forEach((value, i) => {
            put(bytes, Math.floor(i / columns) * stride + (i % columns), dtype, value);
          });
          return [name, bytes] as const;
        }),
      );
      await launcher.launch(text, memory, sizes, capacity);
      return new Map(
        layout.map(({ name, dtype, count, columns, stride }) => [
          name,
          name === 'logits'
            ? []
            : Array.from({ length: count * columns }, (_, i) =>
                take(memory.get(name)!, Math.floor(i / columns) * stride + (i % columns), dtype),
              ),
        ]),
      );
    };
    const got = await launch(cases);
    assert.deepEqual(got.get('token'), cases.map(oracleToken));
    const some = [3, 14, 15, 31];
    const part = await launch(some.map((row) => cases[row]!));
    for (const name of ['token', 'log_prob', 'best_tokens', 'best_log_probs']) {
      const width = got.get(name)!.length / rows;
      const same = some.flatMap((row) => got.get(name)!.slice(row * width, (row + 1) * width));
      assert.deepEqual(part.get(name), same, name);
    }
    launcher.release();
  });
});

describe('filters on the device', { skip }, () => {
  let model: LoadedModel;
  const stepper = (limits: Partial<DeviceModel['limits']> = {}): DeviceModel =>
    stepperFor(model, { feeds: true }, limits);
  const run = async (on: DeviceModel, requests = REQUESTS) => {
    const generator = Engine.of(on);
    const results = await Promise.all(requests.map((request) => generator.generate(request)));
    return results.map(({ tokens }) => tokens);
  };
  before(async () => {
    model = await loadOnDevice(demo, { logits: true, feeds: true });
  });
  after(() => model.close());

  it('choose the same tokens alone, in company and in any order of calls, to the bit', async () => {
    const together = await run(stepper());
    assert.deepEqual(await run(unfed(stepper())), together, 'calls one after another');
    assert.deepEqual(await run(stepper({ filtered: 3, tokens: 37 })), together, 'few filtered rows a call');
    for (const i of [0, 3, 5, 66])
      assert.deepEqual((await run(stepper(), [REQUESTS[i]!]))[0], together[i], `request ${i}`);
    const paths = REQUESTS.map(({ prompt }, i) => [...prompt, ...together[i]!.map(({ token }) => token)]);
    const scores = await scoresOf(Engine.of(stepper()), paths, (i) => REQUESTS[i]!.prompt.length);
    assert.deepEqual(
      scores,
      together.map((tokens) => tokens.map(({ logProb }) => logProb)),
      'log-probabilities are those of scoring',
    );
  });

  it('choose what the CPU chooses of nearly the same logits, at most places', async () => {
    const cpu = await load({ ...demo, target: 'cpu', precision: 'f32', cacheTokens: CACHE_TOKENS, logits: true });
    const few = REQUESTS.slice(0, 32);
    const right = await write(Engine.of(stepperFor(cpu, {})), few);
    const got = await write(Engine.of(stepper()), few);
    // Logits of 16-bit weights and activations differ from those of f32, and paths part for good.
    const first = got.filter(({ tokens }, i) => tokens[0] === right[i]!.tokens[0]).length;
    assert.ok(first >= 24, `${first} of 32 first tokens are equal`);
    await cpu.close();
  });
});
