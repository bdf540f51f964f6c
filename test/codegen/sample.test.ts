/**
 * The kernel that chooses tokens from logits, from both code generators: the tokens of the float64 reference and of an
 * oracle that knows no lists, on random rows and options with ties and banned tokens; the same bits with any other
 * rows, threads and schedules.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { mapInputs, SAMPLE_INPUT_NAMES } from '../../ir/sampleInputs.js';
import { expectSame } from '../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { runGenerated } from './harness.js';
import { oracleToken, type SampleCase, sampleCases, sampleInputs, sampleSizes, type Values } from './sampleCases.js';
import { sampleModule } from './sampleModule.js';
import { TESTED } from './tested.js';

const VOCAB = 2999;
const ROWS = 96;

const CASES = sampleCases(VOCAB, ROWS).slice(0, isThorough ? ROWS : 40);
const inputsOf = (cases: readonly SampleCase[]): Values => sampleInputs(VOCAB, cases);

const OUTPUTS = ['token', 'log_prob', 'best_tokens', 'best_log_probs'] as const;

/** Compares a generator's results with both oracles, and its bits with those of fewer rows. */
function check(run: (inputs: Values) => Values, cases: readonly SampleCase[]): Values {
  const inputs = inputsOf(cases);
  const want = interpretModule(MODULE, { sizes: sampleSizes(inputs), buffers: inputs });
  const got = run(inputs);
  expect([...got.get('token')!]).toEqual([...want.get('token')!]);
  expect([...got.get('best_tokens')!]).toEqual([...want.get('best_tokens')!]);
  for (const name of ['log_prob', 'best_log_probs'])
    got.get(name)!.forEach((value, i) => {
      if (Number.isFinite(want.get(name)![i])) expect(value, `${name}[${i}]`).toBeCloseTo(want.get(name)![i]!, 4);
      else expect(value).toBe(want.get(name)![i]);
    });
  expect([...got.get('token')!]).toEqual(cases.map(oracleToken));
  for (const rows of [[0], [5, 1, 17].filter((row) => row < cases.length)]) {
    const part = run(inputsOf(rows.map((row) => cases[row]!)));
    for (const name of OUTPUTS) {
      const width = got.get(name)!.length / cases.length;
      const same = rows.flatMap((row) => [...got.get(name)!.subarray(row * width, (row + 1) * width)]);
      expectSame(part.get(name), Float64Array.from(same), name);
    }
  }
  return got;
}

const MODULE = sampleModule(VOCAB);

describe('tokens chosen from logits', () => {
  it.each(casesHere(TESTED.filter((isa) => isa !== 'amx')))('in C, %s', (isa) => {
    const run =
      (workers: number, rows: number) =>
      (inputs: Values): Values => {
        const schedules = [{ kind: 'loop', isa, rows } as const];
        const options = { sizes: sampleSizes(inputs), inputs, schedules, workers, tokensCapacity: 8192 };
        const { values, overruns } = runGenerated(MODULE, options);
        expect(overruns).toEqual([]);
        return values;
      };
    const first = check(run(2, 1), CASES);
    const second = run(3, 4)(inputsOf(CASES));
    for (const name of OUTPUTS) expectSame(second.get(name), first.get(name), name);
  });

  it.each(casesHere([64, 1024], 1))('in CUDA, %i threads', (threads) => {
    const run = (inputs: Values): Values =>
      emulateModule(MODULE, {
        sizes: sampleSizes(inputs),
        inputs,
        schedules: [{ kind: 'loop', threads }],
        tokensCapacity: 8192,
      }).values;
    check(run, CASES.slice(0, threads === 64 ? ROWS : isThorough ? 26 : 10));
  });

  it.runIf(hasNvcc && isThorough)('compile for a GPU without spills', () => {
    const capacity = { T: 64, R: 64, F: 64, E: 1024, M: 64 };
    const kernel = emitCudaKernel(MODULE.kernels[0]!, MODULE, { kind: 'loop', threads: 1024 }, capacity);
    const [report] = compileByNvcc([kernel], 'sm_90a');
    expect(report).toMatchObject({ spillStores: 0, spillLoads: 0 });
    expect(report!.registers).toBeLessThanOrEqual(64);
  });

  it('lists every input once', () => {
    expect(Object.values(mapInputs((name) => name))).toEqual(SAMPLE_INPUT_NAMES);
  });
});
