import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Dump } from '../../driver/compile/compile.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { BRIDGE, GRAPH_PASSES, isNeeded, KERNEL_PASSES, type Pass } from '../../passes/pipeline.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { temporaryFolder } from '../models/support.js';
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
