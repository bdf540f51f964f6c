/**
 * AWQ (arXiv:2306.00978) as AutoAWQ writes it for its GEMM kernels: qweight i32 [k, rows / 8], qzeros i32
 * [groups, rows / 8], scales [groups, rows]. A word holds 4-bit codes of 8 rows, even ones before odd ones.
 */
import { wordCodes } from '../../ir/encoding.js';
import type { QuantizationMethod } from './method.js';
import { printGroups, Settings } from './settings.js';

const IN_WORD = 8;
/** Place of each of 8 rows in its word. */
const PLACES = [0, 4, 1, 5, 2, 6, 3, 7];

export const awq: QuantizationMethod = {
  names: ['awq'],
  read: (config, where) => {
    const settings = new Settings(config, where);
    settings.oneOf(['bits', 'w_bit'], [4]);
    settings.oneOf(['version', 'checkpoint_format', 'format'], ['gemm'], 'gemm');
    settings.oneOf(['backend'], ['autoawq', 'auto'], 'autoawq');
    settings.oneOf(['zero_point'], [true], true);
    const size = settings.groupSize(['group_size', 'q_group_size']);
    return {
      group: size,
      matrixOf: (module) => {
        if (module.get('qweight') === undefined) return undefined;
        const { rows, k } = module;
        const group = size === -1 ? k : size;
        if (rows % IN_WORD !== 0)
          return module.refuse('qweight', `words of ${IN_WORD} codes do not divide its ${rows} rows`);
        if (!module.divides('qweight', group)) return undefined;
        const groups = k / group;
        const codes = module.part('qweight', ['I32'], [k, rows / IN_WORD]);
        const zeros = module.part('qzeros', ['I32'], [groups, rows / IN_WORD]);
        const scales = module.scales('scales', [groups, rows]);
        if (codes === undefined || zeros === undefined || scales === undefined) return undefined;
        const grid = wordCodes('u4', 'column', true, PLACES);
        return {
          scheme: `AWQ, 4 bits, ${printGroups(size)}`,
          encoding: {
            kind: 'codes',
            codes: grid,
            scales: { type: scales.type, blockRows: 1, blockColumns: group, isTransposed: true },
            zero: { kind: 'stored', codes: grid, added: 0 },
            hasGroups: false,
          },
          parts: { codes, scales: scales.part, zeros },
        };
      },
    };
  },
};
