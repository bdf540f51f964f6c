import { describe, expect, it, vi } from 'vitest';
import { GRAPH_PASSES, isNeeded, KERNEL_PASSES } from '../../passes/pipeline.js';
import { lower, optimize, type CompilerStage } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { F32, HALF, TENSOR_CORES } from './lowered.js';

describe('optimize and lower', () => {
  it.each([F32, HALF, TENSOR_CORES])('show every stage to an observer, the model first', (numerics) => {
    const stages: CompilerStage[] = [];
    const observe = (stage: CompilerStage): void => {
      stages.push(stage);
    };
    const graph = optimize(llama(), numerics, observe);
    const module = lower(graph, numerics, observe);
    const names = (passes: readonly { readonly name: string }[]): string[] => passes.map(({ name }) => name);
    const kernelPasses = KERNEL_PASSES.filter((pass) => isNeeded(pass, numerics));
    expect(names(stages)).toEqual(['model', ...names(GRAPH_PASSES), 'lowerKernels', ...names(kernelPasses)]);
    for (const { name, reason } of stages) expect(reason, name).toMatch(/\w+ \w+/);
    const [lastGraph, lastKernels] = [stages[GRAPH_PASSES.length]!, stages.at(-1)!];
    expect(lastGraph.level === 'graph' && lastGraph.graph === graph).toBe(true);
    expect(lastKernels.level === 'kernels' && lastKernels.module === module).toBe(true);
  });

  it.each(KERNEL_PASSES)('verify what $name leaves, and name the pass', (pass) => {
    const graph = optimize(llama(), TENSOR_CORES);
    const broken = vi.spyOn(pass, 'run').mockImplementation((module) => ({ ...module, buffers: [] }));
    try {
      expect(() => lower(graph, TENSOR_CORES)).toThrow(new RegExp(`^After ${pass.name}: Kernel .* is not a buffer`));
    } finally {
      broken.mockRestore();
    }
  });
});
