/** How passes grow with layers: eight times as many take about eight times as long, from graph to kernels. */
import { describe, it } from 'vitest';
import { deriveLaunches } from '../../driver/plan.js';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import type { Graph } from '../../ir/graph/graph.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { buildStep } from '../../models/decoder/graph.js';
import { fuseGroups } from '../../passes/fuseGroups.js';
import { fuseStateWrites } from '../../passes/fuseStateWrites.js';
import { type LoweredModule, lowerKernels } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { expectLinear } from '../support/growth.js';
import { llama, SHAPE } from './llamaGraph.js';

const NUMERICS = cudaNumerics('fp8');
const ROTARY = { inverseFrequencies: Float64Array.from({ length: 4 }, (_, i) => 1 / (i + 1)), factor: 1 };
const CAPACITY = { T: 64, R: 64, C: 64, E: 64, K: 64 };

const step = (layers: number): Graph =>
  buildStep({ ...SHAPE, layers }, { cache: { rows: 40, dtype: 'bf16' }, rotary: ROTARY, dtypeOf: () => 'bf16' });
const lowered = (layers: number, numerics: Numerics = NUMERICS): LoweredModule =>
  lower(optimize(step(layers), numerics), numerics);
/** Kernels as they leave fusion: with loops that copy rows into states. */
const fused = (layers: number): LoweredModule =>
  lowerKernels(fuseGroups(optimize(step(layers), NUMERICS)), NUMERICS.weights);

describe('with layers, time grows in proportion', () => {
  it('in passes over graphs', () => {
    expectLinear((layers) => {
      const graph = llama({ layers });
      return () => optimize(graph, NUMERICS);
    }, 6);
  });

  it('where ops are given to kernels that write states', () => {
    expectLinear((layers) => {
      const graph = optimize(step(layers), NUMERICS);
      return () => fuseGroups(graph);
    }, 12);
  });

  it('where stores to states move into the kernels before', () => {
    expectLinear((layers) => {
      const module = fused(layers);
      return () => fuseStateWrites({ ...module, kernels: module.kernels.map((kernel) => ({ ...kernel })) });
    }, 12);
  });

  it('in verifiers of kernels, and in signatures', () => {
    expectLinear((layers) => {
      const module = lowered(layers);
      return () => {
        const read = structuredClone(module);
        verifyKernels(read);
        deriveLaunches(read, CAPACITY);
      };
    }, 12);
  });
});
