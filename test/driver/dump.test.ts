import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Dump } from '../../driver/compile/dump.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { lower, optimise } from '../../passes/pipeline.js';
import { llama } from '../passes/llamaGraph.js';
import { TENSOR_CORES } from '../passes/lowered.js';

describe('--dump', () => {
  it('writes a numbered file for every stage of graphs and kernels', () => {
    const dir = mkdtempSync(join(tmpdir(), 'tilewright-dump-'));
    const dump = new Dump(join(dir, 'stages'));
    const graph = optimise(llama(), TENSOR_CORES, (stage) => dump.stage(stage));
    lower(graph, TENSOR_CORES, (stage) => dump.stage(stage));
    const files = readdirSync(join(dir, 'stages')).sort();
    expect(files[0]).toBe('00_model.txt');
    expect(files.slice(-8)).toEqual([
      '14_eliminateDeadCode.txt',
      '15_lowerKernels.txt',
      '16_narrowTables.txt',
      '17_fuseWrites.txt',
      '18_splitStream.txt',
      '19_roundProducts.txt',
      '20_finishRows.txt',
      '21_mergeLoops.txt',
    ]);
    const read = (name: string): string => readFileSync(join(dir, 'stages', name), 'utf8');
    expect(parseGraph(read('14_eliminateDeadCode.txt')).nodes).toHaveLength(graph.nodes.length);
    expect(read('16_narrowTables.txt')).not.toContain('roundF20');
    expect(read('19_roundProducts.txt')).toContain('roundF20(acc0)');
    expect(read('19_roundProducts.txt')).toContain('\nlayers_0_attention_qkv: gemm over T, ');
  });
});
