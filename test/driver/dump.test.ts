import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cudaHeadersOf } from '../../codegen/cuda/index.js';
import { Dump } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import type { CompiledModel } from '../../driver/targets/target.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { BRIDGE, GRAPH_PASSES, isNeeded, KERNEL_PASSES, type Pass } from '../../passes/pipeline.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import { temporaryFolder } from '../models/support.js';
import { statePlan } from '../support/statePlan.js';
import { llama } from '../passes/llamaGraph.js';
import { TENSOR_CORES } from '../passes/lowered.js';

describe('--dump', () => {
  it('says which file cannot be written', () => {
    const dir = temporaryFolder();
    writeFileSync(join(dir, 'file'), '');
    expect(() => new Dump(join(dir, 'file', 'in'))).toThrow(/^cannot write .*file.in: part of the path is a file/);
    mkdirSync(join(dir, '00_model.txt'));
    const dump = new Dump(dir);
    expect(() => optimize(llama(), TENSOR_CORES, (stage) => dump.stage(stage))).toThrow(
      /^cannot write .*00_model.txt: it is a folder$/,
    );
  });

  it('writes units, and headers where units include them', () => {
    const dir = join(temporaryFolder(), 'stages');
    const plan = statePlan(cuda.compiler.scheduling, cudaDevice(FACTS, 'bf16'));
    new Dump(dir).plan({ plan, target: cuda } as unknown as CompiledModel);
    const units = readdirSync(dir).filter((name) => /^\d\d_k_\w+\.cu$/.test(name));
    expect(units.length).toBeGreaterThan(0);
    for (const unit of units) {
      const text = readFileSync(join(dir, unit), 'utf8');
      const headers = cudaHeadersOf(text);
      expect(headers.length).toBeGreaterThan(0);
      for (const header of headers) expect(readFileSync(join(dir, header.name), 'utf8')).toBe(header.text);
    }
  });

  it('writes a numbered file for every stage of graphs and kernels', () => {
    const dir = temporaryFolder();
    const dump = new Dump(join(dir, 'stages'));
    const graph = optimize(llama(), TENSOR_CORES, (stage) => dump.stage(stage));
    lower(graph, TENSOR_CORES, (stage) => dump.stage(stage));
    const files = readdirSync(join(dir, 'stages')).sort();
    const needed = (passes: readonly Pick<Pass<never>, 'name' | 'when'>[]): readonly string[] =>
      passes.filter((pass) => isNeeded(pass, TENSOR_CORES)).map(({ name }) => name);
    const stages = ['model', ...needed(GRAPH_PASSES), BRIDGE.name, ...needed(KERNEL_PASSES)];
    expect(files).toEqual(stages.map((name, i) => `${String(i).padStart(2, '0')}_${name}.txt`));
    const read = (name: string): string =>
      readFileSync(
        join(
          dir,
          'stages',
          files.find((file) => file.endsWith(`_${name}.txt`))!,
        ),
        'utf8',
      );
    expect(parseGraph(read('eliminateDeadCode')).nodes).toHaveLength(graph.nodes.length);
    expect(read('deduplicateTables')).not.toContain('roundF20');
    expect(read('roundAccumulators')).toContain('roundF20(acc0)');
    expect(read('roundAccumulators')).toContain('\nlayers_0_attention_qkv: gemm over T, ');
  });
});
