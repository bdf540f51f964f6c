/**
 * Kernels of every skeleton and mode under fixed schedules, at the sizes of a large model where those decide registers:
 * what comparisons of machine code are made of.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emitCudaKernel } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaArch, CudaAttentionSchedule, CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import type { Extents } from '../../../ir/extents.js';
import type { GroupSize } from '../../../ir/groups.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import { scoreOf } from '../../../ir/plan.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { sampleModule } from '../sampleModule.js';
import { generate, type Shape } from './attentionHarness.js';
import { cudaLayer } from './modules.js';
import { headKernel, inE4m3, layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';

export interface GoldenKernel {
  readonly name: string;
  readonly symbol: string;
  readonly source: string;
  readonly arch: CudaArch;
}

interface Case {
  readonly kernel: Kernel;
  readonly module: KernelModule;
}

const emitted = (
  name: string,
  { kernel, module }: Case,
  schedule: CudaSchedule,
  capacity: Extents,
  arch: CudaArch = 'sm_90a',
): GoldenKernel => {
  const { symbol, source } = emitCudaKernel(kernel, module, schedule, capacity);
  return { name, symbol, source, arch };
};

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const gemm = (
  skeleton: CudaGemmSchedule['skeleton'],
  [tm, tn, tk, stages]: readonly [number, number, number, number],
  more: Partial<CudaGemmSchedule> = {},
): CudaGemmSchedule => ({ ...GEMM, skeleton, tm, tn, tk, stages, ...more });

// A layer of LLaMA-33B, on Hopper.

const [HIDDEN, INTER, CAPACITY] = [6656, 17920, 7680];
const large = (which: LayerGemm): WgmmaCase => layerGemm(which, HIDDEN, INTER);
const HEAD = headKernel(HIDDEN, 32_000);
const PINGPONG = gemm('wgmma', [128, 192, 64, 5], { cluster: 2, raster: 16, mode: 'pingpong' });
const COOPERATIVE = gemm('wgmma', [128, 256, 64, 4], { cluster: 2, raster: 16 });
const DEFERRED: CudaGemmSchedule = { ...COOPERATIVE, stages: 3, mode: 'deferred' };
/** Experts take no clusters, and warpgroups in turn. */
const OF_EXPERTS: CudaGemmSchedule = { ...PINGPONG, cluster: 1 };
/** Of a product that chooses experts. */
const ROUTER: CudaGemmSchedule = {
  ...{ ...COOPERATIVE, skeleton: 'skinnyWgmma', cluster: 1, raster: 1 },
  ...{ tm: 8, tn: 16, tk: 64, stages: 8, routes: 'rows' },
};
const NARROW: CudaGemmSchedule = { ...DEFERRED, tk: 128, raster: 22 };

const WGMMA: readonly (readonly [string, Case, CudaGemmSchedule])[] = [
  ['wgmmaQkvPingPong', large('qkv'), PINGPONG],
  ['wgmmaOPingPong', large('o'), PINGPONG],
  ['wgmmaOPingPong208', large('o'), { ...PINGPONG, tn: 208 }],
  ['wgmmaGateUpCooperative', large('gateUp'), COOPERATIVE],
  ['wgmmaGateUpPingPong208', large('gateUp'), { ...PINGPONG, tn: 208 }],
  ['wgmmaQkvDeferred', large('qkv'), DEFERRED],
  ['wgmmaODeferred', large('o'), DEFERRED],
  ['wgmmaQkvRemainder', large('qkv'), { ...DEFERRED, remainderTn: 192 }],
  ['wgmmaGateUpRemainder', large('gateUp'), { ...DEFERRED, remainderTn: 128 }],
  ['wgmmaORemainder', large('o'), { ...DEFERRED, remainderTn: 160 }],
  ['wgmmaGateUpDeferred', large('gateUp'), { ...DEFERRED, tn: 208 }],
  ['wgmmaDownTall', layerGemm('down', HIDDEN, INTER, 128, 'f16'), { ...PINGPONG, tm: 192, tn: 128, cluster: 1 }],
  ['wgmmaQkvE4m3', inE4m3(large('qkv')), NARROW],
  ['wgmmaDownE4m3', inE4m3(large('down'), true), NARROW],
  ['wgmmaOE4m3', inE4m3(large('o')), { ...NARROW, epilogueGroups: 1 }],
  ['wgmmaHeadCooperative', HEAD, COOPERATIVE],
  ['wgmmaHeadPingPong', HEAD, { ...PINGPONG, tm: 64, tn: 256 }],
  ['wgmmaOTwoSlabs', layerGemm('o', 256, 512, 64), { ...COOPERATIVE, tn: 64, tk: 128, stages: 2 }],
  ['skinnyQkv', large('qkv'), gemm('skinny', [8, 32, 128, 4])],
  ['skinnyGateUp', large('gateUp'), gemm('skinny', [16, 32, 128, 4])],
  ['skinnyDown', large('down'), gemm('skinny', [64, 64, 64, 4])],
  ['skinnyWgmmaQkv', large('qkv'), gemm('skinnyWgmma', [8, 32, 128, 6])],
  ['skinnyWgmmaGateUp', large('gateUp'), gemm('skinnyWgmma', [16, 64, 128, 6])],
  ['skinnyWgmmaDown', large('down'), gemm('skinnyWgmma', [64, 64, 128, 4])],
  ['skinnyHead', HEAD, gemm('skinny', [8, 256, 64, 4])],
  ['skinnyWgmmaHead', HEAD, gemm('skinnyWgmma', [8, 256, 64, 4])],
];

/** A layer's contraction with its weights in groups of 4 bits. */
function inGroups(which: LayerGemm, group: GroupSize, half: 'bf16' | 'f16'): Case {
  const { kernel, module } = layerGemm(which, HIDDEN, INTER, 128, half);
  const weights = module.weights.map((weight) => ({ ...weight, layout: 'groups', format: 'u4', group }) as const);
  return { kernel, module: { ...module, weights } };
}

const GROUPED: readonly (readonly [string, Case, CudaGemmSchedule])[] = [
  ['groupedO', inGroups('o', 128, 'bf16'), gemm('grouped', [8, 96, 128, 3])],
  ['groupedGateUp', inGroups('gateUp', 64, 'f16'), gemm('grouped', [16, 64, 512, 2])],
  ['groupedDown', inGroups('down', 128, 'bf16'), gemm('grouped', [64, 32, 128, 4])],
];

// Every kind of kernel of a small layer, for GPUs from sm_80 on.

const LAYER = cudaLayer(
  { hidden: 64, heads: 2, kvHeads: 1, headDim: 32, inter: 96, vocab: 600, width: 8 },
  { T: 4, R: 2 },
  1,
).module;
const MMA = gemm('mma', [64, 64, 32, 3], { raster: 4 });
const SIMT = gemm('simt', [32, 64, 32, 1], { raster: 4 });
const LOOP = { kind: 'loop', threads: 128 } as const;
const OF_LAYER: readonly (readonly [string, string, CudaSchedule])[] = [
  ['simtQkv', 'qkv', SIMT],
  ['mmaGateUp', 'gate_up', MMA],
  ['mmaHead', 'head_logprob', MMA],
  ['simtHead', 'head_logprob', SIMT],
  ['loopEmbed', 'embed_tokens', LOOP],
  ['loopRotary', 'rotary', LOOP],
  ['loopReduce', 'reduce', LOOP],
];
const kernelNamed = (module: KernelModule, name: string): Kernel => {
  const kernel = module.kernels.find((each) => each.name === name);
  if (kernel === undefined) throw new Error(`no kernel ${name}`);
  return kernel;
};

// Attention.

const attention = (
  skeleton: CudaAttentionSchedule['skeleton'],
  queries: number,
  more: Partial<CudaAttentionSchedule> = {},
): CudaAttentionSchedule => ({ kind: 'attention', skeleton, queries, keys: 32, ...more });
const HEADS: Shape = { heads: 52, kvHeads: 52, headDim: 128, dtype: 'bf16' };
const PATH: Shape = { ...HEADS, mask: 'path' };
const EIGHT: Shape = { heads: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true };
const ATTENTION: readonly (readonly [string, Shape, CudaAttentionSchedule])[] = [
  ['attentionSimt', HEADS, attention('simt', 16)],
  ['attentionBias', { ...HEADS, headDim: 37, dtype: 'f32', mask: 'bias' }, attention('simt', 32)],
  ['attentionMma', { ...HEADS, headDim: 64 }, attention('mma', 64)],
  ['attentionMmaTall', HEADS, attention('mma', 128)],
  ['attentionMmaWide', { ...HEADS, headDim: 256 }, attention('mma', 64)],
  ['attentionPathSimt', { ...PATH, headDim: 80, dtype: 'f32' }, attention('simt', 16)],
  ['attentionPathMma', { ...PATH, kvHeads: 13 }, attention('mma', 16)],
  ['attentionPathShared', { ...PATH, out: 'f32' }, attention('mma', 64, { sharesTiles: true })],
  ['attentionPathWgmma', PATH, attention('wgmma', 128)],
  ['attentionPathWgmmaEight', EIGHT, attention('wgmma', 32)],
  ['attentionPathWgmmaCapped', { ...PATH, kvHeads: 13, cap: 30 }, attention('wgmma', 32)],
  ['attentionDecode', PATH, attention('mma', 1)],
  ['attentionDecodeClusters', PATH, attention('mma', 1, { cluster: 8, teams: 2 })],
  ['attentionDecodeEight', EIGHT, attention('mma', 1, { cluster: 4, teams: 2 })],
  ['attentionDecodeLone', PATH, attention('mma', 1, { lone: 8 })],
  ['attentionDecodeLoneEight', EIGHT, attention('mma', 1, { lone: 8 })],
  ['attentionDecodeRuns', PATH, attention('mma', 8, { cluster: 8 })],
  ['attentionDecodeRunsEight', EIGHT, attention('mma', 4, { cluster: 4 })],
  ['attentionDecodeRunsTall', EIGHT, attention('mma', 8, { cluster: 8 })],
  ['attentionDecodeRunsTeams', EIGHT, attention('mma', 4, { cluster: 8, teams: 2 })],
  ['attentionDecodeWide', { ...EIGHT, kvHeads: 2, headDim: 256 }, attention('mma', 1)],
  ['attentionStems', { ...PATH, kvHeads: 13 }, attention('mma', 4, { lone: 6 })],
  ['attentionStemsEight', EIGHT, attention('mma', 4, { lone: 5 })],
];

/** Kernels of a mixture of experts: their choice, their order, and products by whose rows lie together. */
function ofExperts(): GoldenKernel[] {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-golden-'));
  try {
    const config = {
      ...{ architectures: ['MixtralForCausalLM'], model_type: 'mixtral', torch_dtype: 'bfloat16', vocab_size: 600 },
      ...{ hidden_size: 512, intermediate_size: 768, num_hidden_layers: 2, max_position_embeddings: 512 },
      ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 128, num_local_experts: 8 },
      ...{ num_experts_per_tok: 2, rms_norm_eps: 1e-5, tie_word_embeddings: true },
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const plan = scoreOf(
      compileModel(describeRandomCheckpoint(folder, 1), cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16'), {
        batchTokens: 4096,
      }).plan,
    );
    const { extents } = plan.capacity;
    const first = (isWanted: (kernel: Kernel) => boolean): Kernel => plan.kernels.find(isWanted)!;
    const isRouter = (kernel: Kernel): boolean => kernel.anchor === 'gemm' && kernel.routing !== undefined;
    const grouped = plan.kernels.filter((kernel) => kernel.anchor === 'gemm' && kernel.experts !== undefined);
    return [
      emitted('expertsRoute', { kernel: first(({ anchor }) => anchor === 'route'), module: plan }, LOOP, extents),
      emitted('expertsRouter', { kernel: first(isRouter), module: plan }, ROUTER, extents),
      emitted('expertsWgmmaGateUp', { kernel: grouped[0]!, module: plan }, OF_EXPERTS, extents),
      emitted('expertsWgmmaDown', { kernel: grouped[1]!, module: plan }, OF_EXPERTS, extents),
      emitted('expertsMmaGateUp', { kernel: grouped[0]!, module: plan }, MMA, extents),
    ];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** All kernels, each printed anew. */
export function goldenKernels(): readonly GoldenKernel[] {
  const sample = sampleModule(32_000);
  return [
    ...[...WGMMA, ...GROUPED].map(([name, own, schedule]) =>
      emitted(name, own, schedule, { T: CAPACITY, R: CAPACITY }),
    ),
    ...OF_LAYER.map(([name, kernel, schedule]) =>
      emitted(name, { kernel: kernelNamed(LAYER, kernel), module: LAYER }, schedule, { T: 128, R: 128 }),
    ),
    emitted(
      'sample',
      { kernel: sample.kernels[0]!, module: sample },
      { kind: 'loop', threads: 256 },
      Object.fromEntries(sample.interface.extents.map(({ name }) => [name, 64])),
    ),
    ...ofExperts(),
    ...ATTENTION.map(([name, shape, schedule]): GoldenKernel => {
      const { symbol, text } = generate(shape, schedule, CAPACITY);
      return { name, symbol, source: text, arch: 'sm_90a' };
    }),
  ];
}
