/**
 * A kernel that is launched before its predecessor has ended must wait for it. Each generator states whether its kernel
 * waits. These tests compare the statement with the text of every skeleton, without the prelude that all kernels share.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaKernelText, CudaSchedule } from '../../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { bodyOf, openUnit } from '../../support/cudaWarp/units.js';
import { attentionModule } from './attentionHarness.js';
import { cudaLayer } from './modules.js';
import { headKernel, layerGemm } from './wgmmaKernels.js';

const CAPACITY = 512;
const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const A100 = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;
const LAYER = cudaLayer(
  { hidden: 64, heads: 2, kvHeads: 1, headDim: 32, inter: 96, vocab: 600, width: 8 },
  { T: 4, R: 2 },
  1,
).module;
const TILE = { kind: 'gemm', cluster: 1, raster: 4, mode: 'cooperative' } as const;
const SIMT: CudaGemmSchedule = { ...TILE, skeleton: 'simt', tm: 32, tn: 64, tk: 32, stages: 1 };
const WGMMA: CudaGemmSchedule = { ...TILE, skeleton: 'wgmma', tm: 128, tn: 256, tk: 64, stages: 3 };

interface Case {
  readonly label: string;
  readonly kernel: Kernel;
  readonly module: KernelModule;
  readonly schedule: CudaSchedule;
}

const simtOf = ({ anchor }: Kernel): CudaSchedule | undefined =>
  anchor === 'gemm' || anchor === 'logprob'
    ? SIMT
    : anchor === 'attention'
      ? { kind: 'attention', skeleton: 'simt', queries: 16, keys: 32 }
      : undefined;

/** Every anchor with its defaults and on CUDA cores, and every form of the Hopper contraction. */
const CASES: readonly Case[] = [
  ...LAYER.kernels.flatMap((kernel): Case[] => {
    const simt = simtOf(kernel);
    const schedules = [
      ...[A100, H100].map((facts) =>
        defaultCudaSchedule(kernel, LAYER, facts, scoringBucket({ tokens: 64, rows: 32, longest: 64 })),
      ),
      ...(simt === undefined ? [] : [simt]),
    ];
    return schedules.map((schedule) => ({ label: kernel.name, kernel, module: LAYER, schedule }));
  }),
  ...(['qkv', 'o', 'gateUp'] as const).flatMap((which) =>
    (['cooperative', 'pingpong', 'deferred'] as const).flatMap((mode) =>
      ([1, 2] as const).map((cluster): Case => {
        const tn = mode === 'pingpong' ? 192 : 256;
        return { label: which, ...layerGemm(which, 512, 512), schedule: { ...WGMMA, mode, tn, cluster } };
      }),
    ),
  ),
  { label: 'remainder tiles', ...layerGemm('o', 512, 512), schedule: { ...WGMMA, mode: 'deferred', remainderTn: 64 } },
  { label: 'vocabulary', ...headKernel(256, 600), schedule: WGMMA },
];

const WAIT =
  /^ {2,}((?:tw_)?await_previous\(\);|wait_for_previous\(\);|asm volatile\("griddepcontrol\.wait;" ::: "memory"\);)$/gm;

/** A kernel's own text; of those that read weights before they wait, also the header where they do. */
const textOf = ({ source }: Pick<CudaKernelText, 'source'>): string =>
  /#include "(?:gemm|head)\/(?:hopper|skinny|skinnyWgmma|grouped|micro)\.cuh"/.test(source)
    ? openUnit(source)
    : bodyOf(source);

/** The kernel's own statements that wait for its predecessor. */
function waitsOf(text: Pick<CudaKernelText, 'source'>): readonly string[] {
  return textOf(text).match(WAIT) ?? [];
}

const emit = ({ kernel, module, schedule }: Case): CudaKernelText =>
  emitCudaKernel(kernel, module, schedule, { T: CAPACITY, R: CAPACITY });

describe('the wait for the preceding kernel', () => {
  it.each(CASES.map((each) => ({ ...each, name: `${each.label}: ${JSON.stringify(each.schedule)}` })))(
    'is stated correctly for $name',
    (each) => {
      expect(isLegalCuda(each.kernel, each.module, each.schedule, H100)).toBe(true);
      const text = emit(each);
      expect(waitsOf(text).length > 0).toBe(text.waitsForPredecessor);
    },
  );

  it('is found only in the body of a kernel, not in the headers', () => {
    for (const each of CASES) {
      const { source } = emit(each);
      expect(textOf({ source }).replaceAll(WAIT, '')).not.toMatch(WAIT);
    }
  });

  it('comes before the first access to memory, in all threads, if the warps of a kernel have no roles', () => {
    // wgmma and skinny read weights before: their own tests look at that.
    const readsAhead = ({ schedule }: Case): boolean =>
      schedule.kind === 'gemm' && ['wgmma', 'skinny', 'skinnyWgmma'].includes(schedule.skeleton);
    for (const each of CASES.filter((each) => !readsAhead(each))) {
      const text = emit(each);
      expect(waitsOf(text)).toEqual([expect.stringMatching(/^ {2}(?:tw_)?await_previous\(\);$/)]);
      const body = text.source.slice(text.source.indexOf(`${text.symbol}(`));
      const before = body.slice(body.indexOf(') {\n') + 4, body.search(/(?:tw_)?await_previous/));
      expect(before).not.toMatch(/\b(?:tw_)?(?:load|store)2?\b|cp\.async|\breturn\b|^ *(if|for|while)\b/m);
    }
  });

  it('comes before everything but inputs of the call in attention of a query over a path', () => {
    const s = { heads: 4, kvHeads: 1, headDim: 64, dtype: 'bf16', mask: 'path', hasQueryRow: true } as const;
    const schedule = { kind: 'attention', skeleton: 'mma', queries: 1, keys: 32, cluster: 2 } as const;
    const { module, kernel } = attentionModule(s);
    const unit = (buffers: typeof module.buffers): string =>
      emitCudaKernel(kernel, { ...module, buffers }, schedule, { T: CAPACITY, R: CAPACITY, C: CAPACITY }).source;
    const text = openUnit(unit(module.buffers));
    const functionText = (name: string): string => {
      const at = text.search(new RegExp(`^template[^;{]*?\\b${name}\\(`, 'm'));
      return text.slice(at, text.indexOf('\n}\n', at));
    };
    const [own] = functionText('decode_run').split('await_previous();');
    const before = `${functionText('decode_attention')}\n${own}`;
    // Rows of keys and values are brought to L2.
    const reads = [before, functionText('path_of'), functionText('token_of')].join('\n');
    const names = [...reads.matchAll(/\bx\.(\w+)\[/g)].map(([, name]) => name);
    expect(new Set(names)).toEqual(new Set(['begin', 'position', 'key', 'query_row']));
    expect(before).not.toMatch(/copy|\bload|\bstore/);
    expect(own).not.toMatch(/\breturn;/);
    expect(waitsOf({ source: unit(module.buffers) })).toEqual([]);
    // Another kernel may write what is no input.
    const computed = module.buffers.map((b) => (b.name === 'key' ? { ...b, space: 'arena' as const } : b));
    expect(unit(computed)).toMatch(/\{\n {2}await_previous\(\);\n {2}decode_attention</);
    expect(unit(computed)).not.toContain('reads_ahead');
  });
});
