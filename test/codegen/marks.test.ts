import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { emitKernel } from '../../codegen/cpu/index.js';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { originMarks, unmarked } from '../../codegen/marks.js';
import { inspectModel } from '../../commands/inspect.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { byFunction, type CpuSchedule } from '../../ir/plan.js';

const DEMO = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'models', 'demo');
if (!existsSync(join(DEMO, 'config.json'))) throw new Error('models/demo belongs to the repository');

const inspect = async (target: 'cpu' | 'cuda:sm_90a') => {
  const { model, stages } = await inspectModel({
    ...{ model: join(DEMO, 'config.json'), init: { kind: 'random', seed: 1 }, precision: 'auto' },
    ...(target === 'cpu' ? { target, isa: 'avx2', cacheTokens: 1024 } : { target }),
  });
  const graphs = stages.flatMap((stage) => (stage.level === 'graph' ? [stage.graph] : []));
  return {
    plan: model.plan,
    ops: new Map(graphs.flatMap(({ nodes }) => nodes.map((node) => [node.result.name, node]))),
  };
};

describe('marks of statements', () => {
  it.each(['cpu', 'cuda:sm_90a'] as const)(
    'for %s say which ops they compute and leave the text as it is',
    async (on) => {
      const { plan, ops } = await inspect(on);
      const counts = byFunction(plan, (own) =>
        own.kernels.flatMap((kernel, i) => {
          const { signature } = own.launches[i]!;
          // Layers that are alike are printed once, by their last.
          if (own.launches.slice(i + 1).some((later) => later.signature === signature)) return [];
          const schedule = own.schedules.at(-1)![signature];
          const { extents } = own.capacity;
          const emit = (mark?: typeof originMarks): string =>
            on === 'cpu'
              ? emitKernel(kernel, own, schedule as CpuSchedule, extents, mark).source
              : emitCudaKernel(kernel, own, schedule as CudaSchedule, extents, mark).source;
          const { text, origins } = unmarked(emit(originMarks));
          expect(text).toBe(emit());
          const named = [...new Set(origins.flat())];
          expect(named.filter((name) => !ops.has(name))).toEqual([]);
          return [[kernel.path.replace(/\d+/, ''), named.map((name) => ops.get(name)!.op)] as const];
        }),
      );
      const gateUp = counts['score']!.find(([path]) => path === 'layers..ffn.gate_up')![1];
      expect(gateUp).toEqual(expect.arrayContaining(['linear', 'mean', 'exp', 'div', 'mul']));
      const qkv = (counts['step'] ?? counts['score']!).find(([path]) => path === 'layers..attention.qkv')![1];
      expect(qkv).toEqual(expect.arrayContaining(['linear', 'mul', 'rotate_half', 'add']));
    },
  );

  it('are none where expressions come from a file', () => {
    expect(originMarks({ op: 'const', value: 1 })).toBeUndefined();
    expect(unmarked('a\nb')).toEqual({ text: 'a\nb', origins: [[], []] });
  });
});
