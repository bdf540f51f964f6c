/** A module of one kernel, which chooses tokens from logits. */
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { SAMPLE_INPUT_NAMES, SAMPLE_INPUTS, mapInputs, maskWords } from '../../ir/sampleInputs.js';

/** The buffer of an input: `min_log_p` of minLogP. */
export const bufferOf = (input: string): string => input.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const EXTENT_OF = { row: 'F', entry: 'E', token: 'T', mask: 'M' } as const;

export function sampleModule(vocab: number, most = 32): KernelModule {
  const buffer = (
    name: string,
    dtype: BufferDecl['dtype'],
    rows: string,
    columns: number,
    space: BufferDecl['space'],
  ): BufferDecl => ({ name, dtype, rows, columns, space });
  return {
    interface: {
      name: 'step',
      extents: [{ name: 'T' }, { name: 'R' }, { name: 'F', within: 'R' }, { name: 'E' }, { name: 'M' }],
      inputs: [],
      outputs: [],
      takes: [],
      gives: [],
    },
    buffers: [
      buffer('logits', 'f32', 'F', vocab, 'input'),
      buffer('top', 'f32', 'R', 1, 'input'),
      buffer('sum', 'f32', 'R', 1, 'input'),
      ...SAMPLE_INPUT_NAMES.map((name) => {
        const { dtype, per } = SAMPLE_INPUTS[name];
        return buffer(bufferOf(name), dtype, EXTENT_OF[per], per === 'mask' ? maskWords(vocab) : 1, 'input');
      }),
      buffer('top_count', 'i32', 'F', 1, 'input'),
      buffer('saved', 'f32', 'E', 1, 'arena'),
      buffer('token', 'i32', 'F', 1, 'output'),
      buffer('log_prob', 'f32', 'F', 1, 'output'),
      buffer('best_tokens', 'i32', 'F', most, 'output'),
      buffer('best_log_probs', 'f32', 'F', most, 'output'),
    ],
    weights: [],
    kernels: [
      {
        ...{ name: 'sample', path: 'head.sample', ops: ['sample'], anchor: 'sample', rows: 'F', vocab },
        logits: 'logits',
        totals: { top: 'top', sum: 'sum' },
        inputs: mapInputs(bufferOf),
        saved: 'saved',
        token: 'token',
        logProb: 'log_prob',
        best: { most, count: 'top_count', tokens: 'best_tokens', logProbs: 'best_log_probs' },
      },
    ],
  };
}
