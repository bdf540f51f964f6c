/** Kernels of plans in the cache: known without being printed, and printed when their text is read. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { emitTranslationUnit, unitOf } from '../../codegen/cpu/index.js';
import { packKnown, unpackModel } from '../../driver/artifact/planCache.js';
import { compileModel } from '../../driver/compile/compile.js';
import { openModel } from '../../driver/functions.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { CPU_PRINTING } from '../../driver/targets/cpuKernels.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { CUDA_PRINTING } from '../../driver/targets/cudaKernels.js';
import type { PrintedText } from '../../driver/targets/machineCode.js';
import { factsOf, kernelsOf, type Printing, printKernels, textsOf } from '../../driver/targets/printedKernels.js';
import type { CompiledModel, Target } from '../../driver/targets/target.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-printed-'));
afterAll(() => rmSync(root, { recursive: true }));

let folder = '';
beforeEach(() => {
  const cache = mkdtempSync(join(root, 'cache-'));
  folder = join(cache, 'plans');
  vi.stubEnv('TILEWRIGHT_CACHE', cache);
  return () => vi.unstubAllEnvs();
});

const demo = openModel(join(import.meta.dirname, '..', '..', 'models', 'demo'), { kind: 'checkpoint' });

function describeTarget<S, D, T extends PrintedText>(target: Target<S, D>, device: D, printing: Printing<S, T>): void {
  describe(`kernels of a plan for ${target.name}`, () => {
    const compiled = compileModel(demo, target, device, { batchTokens: 64, cacheTokens: 64 });
    const packed = packKnown(compiled as CompiledModel);
    const model = packed.model as CompiledModel<S, D>;
    const eager = printKernels(model.plan, printing);
    /** Counts what is printed. */
    const counting = (): { readonly own: Printing<S, T>; readonly printed: () => number } => {
      let printed = 0;
      return { own: { ...printing, print: (...all) => (printed++, printing.print(...all)) }, printed: () => printed };
    };

    it('are printed once, and known from then on', () => {
      const { own, printed } = counting();
      expect(kernelsOf(model, own)).toStrictEqual(eager);
      const first = printed();
      expect(first).toBeGreaterThan(0);
      const read = unpackModel(packed.bytes) as CompiledModel<S, D>;
      const known = kernelsOf(read, own);
      expect(printed()).toBe(first);
      for (const [name, buckets] of Object.entries(known))
        buckets.forEach((launches, bucket) =>
          launches.forEach((text, i) => {
            const { digest, source, ...facts } = text;
            const { source: expected, ...others } = eager[name]![bucket]![i]!;
            expect(source).toBe(expected);
            expect(digest).toMatch(/^[0-9a-f]{64}$/);
            expect(facts).toStrictEqual(others);
          }),
        );
    });

    it('are printed anew where their entry is damaged', () => {
      const { own, printed } = counting();
      kernelsOf(model, own);
      const [name] = readdirSync(folder);
      expect(name).toMatch(/^[0-9a-f]{64}\.twk$/);
      writeFileSync(join(folder, name!), 'damaged');
      const first = printed();
      expect(kernelsOf(model, own)).toStrictEqual(eager);
      expect(printed()).toBe(2 * first);
    });

    it('are not those of a model with another plan', () => {
      const { own, printed } = counting();
      kernelsOf(model, own);
      const first = printed();
      kernelsOf({ ...model, plan: { ...model.plan } }, own);
      expect(printed()).toBe(2 * first);
      expect(readdirSync(folder)).toHaveLength(1);
    });

    it('are refused where they are those of another plan', () => {
      const facts = factsOf(model.plan, eager, printing);
      const { score, step } = facts.places;
      expect(() => textsOf(model.plan, { ...facts, places: { score: score! } }, printing)).toThrow(
        /0 sets of kernels for \d+ buckets of step/,
      );
      expect(() =>
        textsOf(model.plan, { ...facts, places: { score: score!.slice(1), step: step! } }, printing),
      ).toThrow('buckets of score');
      expect(() => textsOf(model.plan, { ...facts, kernels: [] }, printing)).toThrow('has no kernel');
      const bare = score!.map(() => ({}));
      expect(() => textsOf(model.plan, { ...facts, places: { score: bare, step: step! } }, printing)).toThrow(
        'bucket 0 of score has no kernel',
      );
    });
  });
}

describeTarget(cpu, cpuDevice(detectMachine(), 'f32'), CPU_PRINTING);
describeTarget(cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16'), CUDA_PRINTING);

describe('a C file', () => {
  const kernel = { symbol: 'k_loop_a_b', headers: [], scratchBytes: 0, parameters: [], source: 'int a;' };

  it('is printed when its text is read', () => {
    const unread = {
      ...kernel,
      digest: '0'.repeat(64),
      get source(): string {
        throw new Error('printed');
      },
    };
    const unit = unitOf(unread);
    expect(() => unit.text).toThrow('printed');
    expect(unitOf(kernel).text).toBe(emitTranslationUnit([kernel]));
  });

  it('has a digest of what it is made of', () => {
    const { digest } = unitOf(kernel);
    expect(unitOf({ ...kernel, source: 'int b;' }).digest).not.toBe(digest);
    expect(unitOf({ ...kernel }).digest).toBe(digest);
  });
});
