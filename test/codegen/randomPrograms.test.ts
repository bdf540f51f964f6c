/**
 * Random graphs, lowered by passes/ and run by generated code: the same numbers as the float64 interpreter of kernel IR
 * gives.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { defaultSchedule } from '../../codegen/cpu/index.js';
import { CompileError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../ir/scoring.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import { bufferName, lowerAsIs, printModule } from '../passes/lowered.js';
import { program } from '../passes/randomProgram.js';
import { distance, environment } from '../passes/support.js';
import { runGenerated, RUNNABLE } from './harness.js';

const FACTS = { isas: RUNNABLE.filter((isa) => isa !== 'amx'), l1: 32768, l2: 1 << 20 };

function expectSame(graph: Graph, module: LoweredModule): void {
  const env = environment(graph);
  const { T = 0, R = 0 } = env.sizes;
  const schedules = module.kernels.map((kernel) =>
    defaultSchedule(kernel, module, FACTS, scoringBucket({ tokens: T, rows: R, longest: T })),
  );
  const inputs = new Map(graph.params.map((p) => [bufferName(p), env.params.get(p.name)!]));
  const tensors = new Map(
    graph.weights.map((w): [string, RawTensor] => {
      const [rows, columns = 1] = w.type.shape as readonly number[];
      return [w.name, { rows: rows!, columns, data: env.weights.get(w.name)! }];
    }),
  );
  const got = runGenerated(module, { sizes: { T, R }, inputs, tensors, schedules, workers: 2, isQuick: true });
  const want = interpretModule(module, { sizes: env.sizes, buffers: inputs, tensors, round: true });
  expect(got.overruns).toEqual([]);
  for (const { name } of module.buffers.filter((b) => b.space === 'output')) {
    expect(distance(want.get(name)!, got.values.get(name)!), `${name} of${printModule(module)}`).toBeLessThan(1e-4);
  }
}

describe('generated code', () => {
  it('computes random programs correctly', () => {
    let compiled = 0;
    fc.assert(
      fc.property(program, (graph) => {
        let module: LoweredModule;
        try {
          module = lowerAsIs(graph);
        } catch (error) {
          if (error instanceof CompileError) return;
          throw error;
        }
        // The harness reads every buffer back as padded, but a table in the checkpoint's own memory is not.
        if (module.buffers.some((b) => b.space === 'weight' && b.columns !== 1)) return;
        expectSame(graph, module);
        compiled++;
      }),
      { numRuns: 25, seed: 71, endOnFailure: true },
    );
    expect(compiled).toBeGreaterThan(15);
  });
});
