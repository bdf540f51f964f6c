/**
 * The function step as the passes lower it for GPUs, with keys and values in 16 bits: run over fibres, compared with
 * float64 and with itself to the bit, and compiled by nvcc if it is installed.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { filterInputs, type FilterRow } from '../../engine/tokenEntries.js';
import { CUDA_ARCHS, type CudaArch } from '../../ir/cuda.js';
import { type Extents, fitsIn } from '../../ir/extents.js';
import { NO_FILTERS } from '../../ir/filters.js';
import { STEP } from '../../ir/function.js';
import { noiseKey } from '../../ir/gumbel.js';
import { maskWords } from '../../ir/sampleInputs.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { type CudaPlan, linkFunction } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { below, randomModel, type RandomModel } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';
import { expectSame } from '../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';

const CACHE_TOKENS = 192;
/** Of every row: its score, what the head draws, and what is chosen from its logits. */
const OUTPUTS = ['logProb', 'nextToken', 'nextTokenLogProb', 'filteredToken', 'filteredTokenLogProb'] as const;
/** Tokens of each sequence. */
const LENGTHS = [35, 1, 18];

interface Piece {
  readonly sequence: number;
  readonly from: number;
  readonly to: number;
}

class Steps {
  private readonly model: RandomModel;
  private readonly plan;
  private readonly tokens: readonly (readonly number[])[];
  /** Where the keys and values of each token go. */
  private readonly slots: readonly (readonly number[])[];
  /** Half of all tokens each. */
  private readonly masks: readonly Uint32Array[];
  private states: ReadonlyMap<string, Float64Array> = new Map();

  constructor(model: RandomModel, placement: number) {
    this.model = model;
    this.plan = linkFunction(model.plan, STEP);
    const random = randomSource(5);
    this.tokens = LENGTHS.map((length) => Array.from({ length }, () => below(random, model.vocab)));
    const order = Array.from({ length: CACHE_TOKENS }, (_, i) => (i * placement) % CACHE_TOKENS);
    const words = maskWords(model.vocab);
    this.masks = [3, 5, 7].map((seed) =>
      Uint32Array.from({ length: words }, (_, i) => Math.imul(i + seed, 0x9e3779b1)),
    );
    let next = 0;
    this.slots = LENGTHS.map((length) => order.slice(next, (next += length)));
  }

  /** Every new token is scored against the next. Returns the log-probabilities, the drawn tokens, and theirs. */
  run(pieces: readonly Piece[], isExact = false): readonly Float64Array[] {
    const { sizes, inputs } = this.inputs(pieces);
    const buffers = new Map([...inputs, ...this.states]);
    const { tensors } = this.model;
    const bucket = this.plan.buckets.findIndex(({ extents }) => fitsIn(sizes, extents));
    const values = isExact
      ? interpretModule(this.plan, { sizes, buffers, tensors })
      : emulateModule(this.plan, {
          sizes,
          inputs: buffers,
          tensors,
          schedules: this.plan.launches.map(({ signature }) => this.plan.schedules[bucket]![signature]!),
          tokensCapacity: 512,
        }).values;
    const states = this.plan.buffers.filter(({ space }) => space === 'state');
    this.states = new Map(states.map(({ name }) => [name, values.get(name)!]));
    return OUTPUTS.map((name) =>
      values.get(this.plan.interface.outputs.find((output) => output.name === name)!.buffer)!,
    );
  }

  private inputs(pieces: readonly Piece[]): { sizes: Extents; inputs: ReadonlyMap<string, Float64Array> } {
    const arrays: Record<string, number[]> = {
      tokens: [],
      position: [],
      slot: [],
      begin: [],
      key: [],
      row: [],
      target: [],
      inverseTemperature: [],
      keyLow: [],
      keyHigh: [],
      ...Object.fromEntries(Object.keys(filterInputs([])).map((name) => [name, []])),
    };
    const filtered: FilterRow[] = [];
    for (const { sequence, from, to } of pieces) {
      const begin = arrays['key']!.length;
      arrays['key']!.push(...this.slots[sequence]!.slice(0, to));
      for (let at = from; at < to; at++) {
        arrays['row']!.push(arrays['tokens']!.length);
        arrays['tokens']!.push(this.tokens[sequence]![at]!);
        arrays['target']!.push(this.tokens[sequence]![at + 1] ?? 0);
        arrays['position']!.push(at);
        arrays['slot']!.push(this.slots[sequence]![at]!);
        arrays['begin']!.push(begin);
        // Every third token is the most likely one; the others are drawn.
        const { low, high } = noiseKey(BigInt(sequence) << 40n, at);
        arrays['inverseTemperature']!.push(at % 3 === 0 ? 0 : 1 / at);
        arrays['keyLow']!.push(low);
        arrays['keyHigh']!.push(high);
        filtered.push({
          filters: { ...NO_FILTERS, topK: at % 5 === 0 ? 0 : 40, topP: 0.9, repetition: 1.2, presence: 0.25 },
          entries: {
            token: Int32Array.of(at, at + 7),
            bias: Float32Array.of(0.5, -Infinity),
            count: Int32Array.of(-1, at % 3),
          },
          isGenerated: at % 2 === 1,
          topCount: 5,
          mask: at % 4 === 1 ? this.masks[at % 3] : undefined,
        });
      }
    }
    for (const [name, values] of Object.entries(filterInputs(filtered))) arrays[name] = [...values];
    const inputs = this.plan.interface.inputs.map(
      ({ name, buffer }) => [buffer, Float64Array.from(arrays[name]!)] as const,
    );
    const T = arrays['tokens']!.length;
    const zeros = this.plan.buffers
      .filter(({ name, space }) => space === 'state' && !this.states.has(name))
      .map(({ name, rows, columns }) => [name, new Float64Array(Number(rows) * Number(columns))] as const);
    const E = arrays['entryToken']!.length;
    const M = Math.max(-1, ...arrays['maskRow']!) + 1;
    return { sizes: { T, C: arrays['key']!.length, R: T, F: T, E, M }, inputs: new Map([...inputs, ...zeros]) };
  }
}

/** Calls of at most `size` tokens of each sequence; results by sequence. */
function inChunks(steps: Steps, size: number): readonly Float64Array[] {
  const found = LENGTHS.map(() => OUTPUTS.map((): number[] => []));
  for (let from = 0; from < Math.max(...LENGTHS); from += size) {
    const pieces = LENGTHS.flatMap((length, sequence) =>
      from < length ? [{ sequence, from, to: Math.min(length, from + size) }] : [],
    );
    const results = steps.run(pieces);
    let at = 0;
    for (const { sequence, from: begin, to } of pieces) {
      results.forEach((values, i) => found[sequence]![i]!.push(...values.subarray(at, at + to - begin)));
      at += to - begin;
    }
  }
  return OUTPUTS.map((_, i) => Float64Array.from(found.flatMap((each) => each[i]!)));
}

/**
 * What may differ from float64 with the same roundings, where a number near the middle between two codes becomes the
 * other one: log-probabilities by `off`, and so many drawn tokens of 54.
 */
const CACHES = [
  { kvCache: '16bit', seed: 3, heads: 3, off: 0.15, draws: 2 },
  { kvCache: 'fp8', seed: 9, heads: 2, off: 0.3, draws: 10 },
  { kvCache: 'int8', seed: 8, heads: 1, off: 0.15, draws: 2 },
] as const;

describe.each(CACHES)('step over fibres, $kvCache, $heads heads of keys', ({ kvCache, seed, heads, off, draws }) => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-step-'));
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });
  const facts = TYPICAL_FACTS[kvCache === '16bit' ? 'sm_80' : 'sm_90a'];
  const model = randomModel(folder, seed, 'bf16', facts, { cacheTokens: CACHE_TOKENS, logits: true, kvCache });
  const whole = LENGTHS.map((to, sequence) => ({ sequence, from: 0, to }));
  const wanted = new Steps(model, 1).run(whole);

  it('keeps scales of several heads in blocks', () => {
    const scales = model.plan.states.filter(({ isBlocked }) => isBlocked === true);
    expect(scales.map(({ columns }) => columns)).toEqual(
      kvCache === '16bit' || heads === 1 ? [] : Array.from({ length: 4 }, () => heads),
    );
  });

  it('agrees with float64', () => {
    const exact = new Steps(model, 1).run(whole, true);
    const most = wanted[0]!.reduce((worst, x, i) => Math.max(worst, Math.abs(x - exact[0]![i]!)), 0);
    expect(most).toBeLessThan(off);
    for (const i of [1, 3]) {
      const others = wanted[i]!.filter((token, row) => token !== exact[i]![row]);
      expect(others.length).toBeLessThanOrEqual(draws);
    }
  });

  it.each([1, 7, 16])('gives the same bits in chunks of %i tokens, with keys anywhere', (size) => {
    const found = inChunks(new Steps(model, 5), size);
    found.forEach((values, i) => {
      expectSame(values, wanted[i]!, `output ${i}`);
    });
  });

  it('gives the same bits alone', () => {
    const steps = new Steps(model, 7);
    let at = 0;
    for (const piece of whole) {
      const end = at + piece.to;
      steps.run([piece]).forEach((values, i) => {
        expectSame(values, wanted[i]!.slice(at, end), `sequence ${piece.sequence}, output ${i}`);
      });
      at = end;
    }
  });
});

describe.skipIf(!hasNvcc)('every kernel of the demo model with step, by nvcc', () => {
  const planOf = (arch: CudaArch): CudaPlan =>
    compileModel(openCheckpoint('models/demo'), cuda, cudaDevice(TYPICAL_FACTS[arch], 'bf16'), {
      batchTokens: 512,
      cacheTokens: 4096,
      logits: true,
    }).plan;

  it.each([...CUDA_ARCHS])('compiles for %s without warnings', (arch) => {
    const kernels = [...emitCudaPlan(planOf(arch)).distinct.values()];
    expect(kernels.filter(({ symbol }) => symbol.startsWith('k_attention')).length).toBeGreaterThan(3);
    compileByNvcc(kernels, arch);
  });
});
