/** The text itself: goldens, signatures, symbols, legality and defaults. */
import { scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import {
  compilerFlags,
  defaultSchedule,
  emitKernel,
  emitTranslationUnit,
  unitsOf,
  isLegal,
  kernelSignature,
  parametersOf,
} from '../../codegen/cpu/index.js';
import type { GemmKernel, Kernel, KernelModule } from '../../ir/kernel.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { CPU_ISAS } from '../../ir/plan.js';
import { compile } from './harness.js';
import type { LayerShape } from './modules.js';
import { layerCase } from './modules.js';
import { thorough } from '../support/thorough.js';

const SHAPE: LayerShape = {
  hidden: 64,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  inter: 96,
  vocab: 600,
  width: 16,
  mode: 'f32',
};
const moduleIn = (mode: LayerShape['mode']): KernelModule => layerCase({ ...SHAPE, mode }, { T: 4, R: 2 }, 1).module;
const F32 = moduleIn('f32');
const AMX = moduleIn('amx');
const FACTS = { isas: CPU_ISAS, l1: 48 << 10, l2: 2 << 20 };

function kernelNamed(module: KernelModule, name: string): Kernel {
  const kernel = module.kernels.find((k) => k.name === name);
  if (kernel === undefined) throw new Error(`no kernel ${name}`);
  return kernel;
}

const GOLDENS: readonly { file: string; module: KernelModule; kernel: string; schedule: CpuSchedule }[] = [
  {
    file: 'qkvAvx512',
    module: F32,
    kernel: 'qkv',
    schedule: { kind: 'gemm', isa: 'avx512', mr: 2, nr: 32, kc: 64, mb: 64, nb: 64 },
  },
  {
    file: 'gateUpAvx2',
    module: F32,
    kernel: 'gate_up',
    schedule: { kind: 'gemm', isa: 'avx2', mr: 2, nr: 16, kc: 64, mb: 64, nb: 64 },
  },
  {
    file: 'downAmx',
    module: AMX,
    kernel: 'down',
    schedule: { kind: 'gemm', isa: 'amx', mr: 32, nr: 32, kc: 64, mb: 64, nb: 64 },
  },
  {
    file: 'headPortable',
    module: F32,
    kernel: 'head_logprob',
    schedule: { kind: 'gemm', isa: 'portable', mr: 2, nr: 16, kc: 64, mb: 64, nb: 512 },
  },
  {
    file: 'attentionPortable',
    module: F32,
    kernel: 'attention',
    schedule: { kind: 'attention', isa: 'portable', queries: 32, keys: 64 },
  },
  { file: 'embedLoop', module: F32, kernel: 'embed_tokens', schedule: { kind: 'loop', isa: 'avx512', rows: 8 } },
  { file: 'rotaryLoop', module: F32, kernel: 'rotary', schedule: { kind: 'loop', isa: 'avx512', rows: 8 } },
  { file: 'reduceLoop', module: F32, kernel: 'reduce', schedule: { kind: 'loop', isa: 'avx512', rows: 8 } },
];

describe('generated text', () => {
  it.each(GOLDENS)('is golden $file', async ({ file, module, kernel, schedule }) => {
    const found = kernelNamed(module, kernel);
    expect(isLegal(found, module, schedule, FACTS)).toBe(true);
    await expect(emitKernel(found, module, schedule, { T: 128, R: 128 }).source).toMatchFileSnapshot(
      `golden/${file}.c`,
    );
  });

  it('contains each kernel and each helper once', () => {
    const schedule: CpuSchedule = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 64, mb: 28, nb: 64 };
    const kernels = ['o', 'down'].map((name) => emitKernel(kernelNamed(F32, name), F32, schedule, { T: 128, R: 128 }));
    const text = emitTranslationUnit([...kernels, ...kernels]);
    for (const { symbol } of kernels) expect(text.split(`void ${symbol}(`).length).toBe(2);
    expect(text).toContain('#include "lib/elementary.h"');
    expect(emitTranslationUnit(kernels)).toBe(text);
  });

  it('is few files of several kernels, each kernel once, whatever the order in which they come', () => {
    const schedules = [32, 64, 96, 128].flatMap((kc) =>
      [28, 42].map((mb): CpuSchedule => ({ kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc, mb, nb: 64 })),
    );
    const kernels = ['o', 'down'].flatMap((name) =>
      schedules.map((schedule) => emitKernel(kernelNamed(F32, name), F32, schedule, { T: 128, R: 128 })),
    );
    const units = unitsOf({ score: [kernels, kernels] });
    expect(units.map(({ symbols }) => symbols.length)).toEqual([12, 4]);
    for (const { symbol } of kernels)
      expect(units.filter(({ text }) => text.includes(`void ${symbol}(`)).length).toBe(1);
    for (const { name, symbols } of units) expect(name).toBe(`${symbols[0]!}.c`);
    expect(unitsOf({ score: [kernels.toReversed()] })).toEqual(units);
  });

  it('has files of its own for the kernels that one bucket alone runs', () => {
    const schedule: CpuSchedule = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 32, mb: 28, nb: 64 };
    const kernelOf = (mb: number) => emitKernel(kernelNamed(F32, 'o'), F32, { ...schedule, mb }, { T: 128, R: 128 });
    const [small, large, both, step] = [28, 42, 56, 70].map(kernelOf);
    const units = unitsOf({
      score: [
        [small!, both!, both!],
        [both!, large!],
      ],
      step: [[step!, small!]],
    });
    expect(units.map(({ symbols }) => symbols).sort()).toEqual(
      [small, large, both, step].map((kernel) => [kernel!.symbol]).sort(),
    );
  });

  it('has symbols that C accepts', () => {
    for (const kernel of F32.kernels) {
      const { symbol } = emitKernel(
        kernel,
        F32,
        defaultSchedule(kernel, F32, FACTS, scoringBucket({ tokens: 64, rows: 32, longest: 64 })),
        { T: 128, R: 128 },
      );
      expect(symbol).toMatch(/^k_(gemm|attention|logprob|logprobreduce|loop)_[0-9a-f]{16}_[0-9a-f]{8}$/);
    }
  });
});

const rename = (text: string): string => text.replace(/"(h1|h2|gated|wd|ssq2)"/g, '"layer7_$1"');

describe('tiles of a real processor', () => {
  thorough('compile, though they may not run here', () => {
    const schedule: CpuSchedule = { kind: 'gemm', isa: 'amx', mr: 32, nr: 32, kc: 64, mb: 64, nb: 64 };
    const library = compile(
      emitTranslationUnit([emitKernel(kernelNamed(AMX, 'down'), AMX, schedule, { T: 128, R: 128 })]),
      compilerFlags(['amx']),
    );
    expect(library.symbol(emitKernel(kernelNamed(AMX, 'down'), AMX, schedule, { T: 128, R: 128 }).symbol)).toBeTruthy();
  });
});

describe('kernelSignature', () => {
  const down = kernelNamed(F32, 'down') as GemmKernel;
  const signature = kernelSignature(down, F32, { T: 128, R: 128 });
  it('does not depend on names', () => {
    const module = JSON.parse(rename(JSON.stringify(F32))) as KernelModule;
    const renamed = {
      ...(kernelNamed(module, 'down') as GemmKernel),
      name: 'other',
      path: 'layers.7.down',
      ops: ['x'],
    };
    expect(parametersOf(renamed, module)).toEqual([
      'layer7_gated',
      'layer7_wd',
      'layer7_h1',
      'layer7_h2',
      'layer7_ssq2',
    ]);
    expect(kernelSignature(renamed, module, { T: 128, R: 128 })).toBe(signature);
  });

  it('depends on dtypes, layouts, programs and shapes', () => {
    const change = (f: (text: string) => string): string => {
      const module = JSON.parse(f(JSON.stringify(F32))) as KernelModule;
      return kernelSignature(kernelNamed(module, 'down'), module, { T: 128, R: 128 });
    };
    const others = [
      change((text) => text.replace('"name":"h1","dtype":"f32"', '"name":"h1","dtype":"bf16"')),
      change((text) => text.replaceAll('"layout":"panels"', '"layout":"vnni"')),
      change((text) => text.replaceAll('"op":"add"', '"op":"sub"')),
      change((text) =>
        text.replace(
          '"name":"gated","dtype":"f32","rows":"R","columns":96',
          '"name":"gated","dtype":"f32","rows":"R","columns":1024',
        ),
      ),
    ];
    expect(new Set([signature, ...others]).size).toBe(5);
  });

  it('depends on which operands are the same buffer', () => {
    // h1 + h1 and h1 + h0 differ although both name two operands.
    const o = kernelNamed(F32, 'o') as GemmKernel;
    const module = JSON.parse(JSON.stringify(F32).replaceAll('"buffer":"h0"', '"buffer":"attended"')) as KernelModule;
    expect(kernelSignature(kernelNamed(module, 'o'), module, { T: 128, R: 128 })).not.toBe(
      kernelSignature(o, F32, { T: 128, R: 128 }),
    );
  });
});

describe('isLegal', () => {
  const check = (module: KernelModule, kernel: string, schedule: CpuSchedule): true | string =>
    isLegal(kernelNamed(module, kernel), module, schedule, FACTS);
  const gemm = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 64, mb: 28, nb: 64 } as const;
  it.each([
    ['a schedule of another kind', F32, 'attention', gemm, /attention schedule/],
    ['too many accumulators', F32, 'down', { ...gemm, mr: 16, mb: 32 }, /do not fit/],
    ['part of a head', F32, 'qkv', { ...gemm, nb: 48 }, /multiple of 32/],
    ['part of a pair', F32, 'gate_up', { ...gemm, nb: 96 }, /multiple of 64/],
    ['part of a vocabulary block', F32, 'head_logprob', { ...gemm, nb: 128 }, /multiple of 256/],
    ['tiles on f32 weights', F32, 'down', { ...gemm, isa: 'amx', mr: 32, mb: 32 }, /cannot read/],
    ['vectors on vnni weights', AMX, 'down', gemm, /cannot read/],
    ['a ragged block', F32, 'down', { ...gemm, mb: 30 }, /multiple of mr/],
    ['no keys', F32, 'attention', { kind: 'attention', isa: 'avx512', queries: 32, keys: 0 }, /keys/],
  ] as const)('refuses %s', (_what, module, kernel, schedule, reason) => {
    expect(check(module, kernel, schedule)).toMatch(reason);
  });

  it('refuses what the target lacks', () => {
    expect(isLegal(kernelNamed(F32, 'down'), F32, gemm, { ...FACTS, isas: ['portable'] })).toBe(
      'the target has no avx512',
    );
  });

  it.each(['f32', 'bf16', 'amx'] as const)('accepts every default, %s', (mode) => {
    for (const headDim of [32, 48, 40, 128]) {
      const { module } = layerCase({ ...SHAPE, headDim, width: headDim / 4, mode }, { T: 4, R: 2 }, 1);
      for (const isas of mode === 'amx' ? [CPU_ISAS] : ([['portable'], ['portable', 'avx2'], CPU_ISAS] as const)) {
        for (const tokens of [1, 32, 300, 4096]) {
          for (const kernel of module.kernels) {
            const facts = { ...FACTS, isas };
            expect(
              isLegal(
                kernel,
                module,
                defaultSchedule(kernel, module, facts, scoringBucket({ tokens, rows: tokens, longest: tokens })),
                facts,
              ),
            ).toBe(true);
          }
        }
      }
    }
  });
});

describe('compilerFlags', () => {
  it('ask for no more than the kernels use', () => {
    expect(compilerFlags(['portable']).some((flag) => flag.startsWith('-mavx'))).toBe(false);
    expect(compilerFlags(['avx2']).some((flag) => flag.startsWith('-mavx512'))).toBe(false);
    expect(compilerFlags(['amx'])).toContain('-mamx-bf16');
    expect(compilerFlags(['avx512'])).toContain('-ffp-contract=off');
  });
});
