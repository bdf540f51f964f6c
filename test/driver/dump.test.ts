import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Dump } from '../../driver/compile/dump.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { lower, optimise } from '../../passes/pipeline.js';
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
    expect(() => optimise(llama(), TENSOR_CORES, (stage) => dump.stage(stage))).toThrow(
      /^cannot write .*00_model.txt: it is a folder$/,
    );
  });

  it('writes a numbered file for every stage of graphs and kernels', () => {
    const dir = temporaryFolder();
    const dump = new Dump(join(dir, 'stages'));
    const graph = optimise(llama(), TENSOR_CORES, (stage) => dump.stage(stage));
    lower(graph, TENSOR_CORES, (stage) => dump.stage(stage));
    const files = readdirSync(join(dir, 'stages')).sort();
    expect(files[0]).toBe('00_model.txt');
    expect(files.slice(-8)).toEqual([
      '19_lowerKernels.txt',
      '20_narrowTables.txt',
      '21_fuseWrites.txt',
      '22_splitStream.txt',
      '23_roundProducts.txt',
      '24_finishRows.txt',
      '25_mergeLoops.txt',
      '26_packStates.txt',
    ]);
    const read = (name: string): string => readFileSync(join(dir, 'stages', name), 'utf8');
    expect(parseGraph(read('18_eliminateDeadCode.txt')).nodes).toHaveLength(graph.nodes.length);
    expect(read('20_narrowTables.txt')).not.toContain('roundF20');
    expect(read('23_roundProducts.txt')).toContain('roundF20(acc0)');
    expect(read('23_roundProducts.txt')).toContain('\nlayers_0_attention_qkv: gemm over T, ');
  });
});
