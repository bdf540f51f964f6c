/** Checkpoints that store FP8, on Hopper: their codes are multiplied as they are, with the scales of their rows. */
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { openOrCompile } from '../../driver/compile/open.js';
import type { Precision } from '../../driver/precision.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import type { GpuDevice } from '../../driver/targets/cudaDevice.js';
import type { WeightDecl } from '../../ir/kernel.js';
import type { Json } from '../../models/model/model.js';
import { CONFIG } from '../e2e/smallModel.js';
import { environment } from '../e2e/support.js';
import { temporaryFolder } from '../models/support.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { SILENT } from '../support/silent.js';

/** Tensor cores take columns in steps of 32. */
const SMALL: Json = { ...CONFIG, hidden_size: 64, intermediate_size: 128, head_dim: 16, tie_word_embeddings: false };
const MACHINE = detectMachine();

const open = (model: string, precision: Precision, target = 'cuda:sm_90a') =>
  openOrCompile({ model, init: { kind: 'checkpoint' }, precision, target, batchTokens: 48 }, MACHINE, SILENT);
type Opened = Awaited<ReturnType<typeof open>>;

const codesOf = ({ model }: Opened): readonly WeightDecl[] =>
  model.plan.weights.filter(({ format }) => format === 'e4m3');

describe('a checkpoint with codes of E4M3', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });
  const stored = (name: string, config: Json = {}): string => {
    const dir = temporaryFolder();
    const format = FORMATS[name]!;
    const written = safetensorsOf(quantizedTensors(SMALL, format.write, 3).tensors);
    writeQuantized(dir, SMALL, { ...format, config: { ...format.config, ...config } }, written);
    return dir;
  };
  const dynamic = (activations: Json): Json => {
    const [group] = Object.values(FORMATS['compressed FP8']!.config['config_groups'] as Record<string, Json>);
    return { config_groups: { group_0: { ...group, input_activations: activations } } };
  };
  const rows = { num_bits: 8, type: 'float', strategy: 'token', dynamic: true, symmetric: true };

  it.each([
    ['scales of rows', 'compressed FP8', dynamic(rows)],
    ['a scale for each projection', 'FP8 of projections', {}],
    ['a scale for each matrix, fixed ones for activations', 'FP8, static', {}],
    ['fixed scales in compressed-tensors', 'compressed FP8', dynamic({ ...rows, strategy: 'tensor', dynamic: false })],
  ] as const)('and %s is computed with them', async (_what, name, config) => {
    const opened = await open(stored(name, config), 'auto');
    expect(opened.model.arithmetic).toBe('fp8');
    // Two layers of seven matrices, and no layer at the ends in 16 bits.
    const tensors = codesOf(opened).flatMap(({ sources, from }) => sources.map(() => from));
    expect(tensors).toEqual(Array<string>(14).fill('codes'));
    const scales = opened.model.plan.weights.filter(({ scalesOf }) => scalesOf !== undefined);
    expect(scales.every(({ from, columnScale }) => from === 'codes' && columnScale === undefined)).toBe(true);
    const device = opened.model.device as GpuDevice;
    expect(cuda.manifest.restore(JSON.parse(JSON.stringify(cuda.manifest.describe(device))), MACHINE)).toEqual(device);
  });

  it.each([
    ['for 16 bits', 'compressed FP8', dynamic(rows), 'bf16', 'cuda:sm_90a', undefined],
    ['on GPUs before Hopper', 'compressed FP8', dynamic(rows), 'auto', 'cuda:sm_80', undefined],
    ['where activations are to stay', 'compressed FP8', {}, 'auto', 'cuda:sm_90a', undefined],
    ['where scales are those of blocks', 'FP8 in blocks', {}, 'auto', 'cuda:sm_90a', undefined],
    ['unless it is asked for', 'compressed FP8', {}, 'fp8', 'cuda:sm_90a', 'codes'],
  ] as const)('is decoded %s', async (_what, name, config, precision, target, from) => {
    const opened = await open(stored(name, config), precision, target);
    expect(new Set(codesOf(opened).map((weight) => weight.from))).toEqual(new Set(from === undefined ? [] : [from]));
    expect(opened.model.arithmetic === 'fp8').toBe(from !== undefined);
  });
});
