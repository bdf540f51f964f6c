/**
 * GPTQ (arXiv:2210.17323) as AutoGPTQ and GPTQModel write it: qweight i32 [k / n, rows] of n codes along k, qzeros
 * i32 [groups, rows / n], scales [groups, rows], and g_idx i32 [k], the group of each column. In the first version of
 * the format stored zero points are one less than those meant, modulo their range.
 */
import { defined } from '../../system/defined.js';
import { wordCodes } from '../../ir/encoding.js';
import type { QuantizationMethod } from './method.js';
import { printGroups, Settings } from './settings.js';

const CODES = { 2: 'u2', 4: 'u4', 8: 'u8' } as const;

export const gptq: QuantizationMethod = {
  names: ['gptq'],
  read: (config, where) => {
    const settings = new Settings(config, where);
    const bits = settings.oneOf(['bits', 'w_bit'], [2, 4, 8]);
    const size = settings.groupSize(['group_size', 'q_group_size']);
    const format = settings.oneOf(['checkpoint_format', 'format'], ['gptq', 'gptq_v2'], 'gptq');
    const isOrdered = settings.oneOf(['desc_act'], [true, false], false);
    settings.oneOf(['pack_dtype'], ['int32'], 'int32');
    for (const key of ['is_marlin_format', 'adapter', 'rotation']) settings.forbid(key);
    // Patterns that leave modules out say no more than that these are floats.
    const others = Object.keys(settings.record('dynamic') ?? {}).filter((pattern) => !pattern.startsWith('-:'));
    if (others.length > 0) settings.forbid('dynamic');
    const inWord = 32 / bits;
    const scheme = `GPTQ${format === 'gptq' ? '' : ' version 2'}, ${bits} bits, ${printGroups(size)}${
      isOrdered ? ', columns by activation' : ''
    }`;
    return {
      ...(bits === 4 ? { group: size } : {}),
      matrixOf: (module) => {
        if (module.get('qweight') === undefined) return undefined;
        const { rows, k } = module;
        const group = size === -1 ? k : size;
        if (k % inWord !== 0 || rows % inWord !== 0)
          return module.refuse('qweight', `words of ${inWord} codes do not divide its matrix [${rows}, ${k}]`);
        if (!module.divides('qweight', group)) return undefined;
        const groups = k / group;
        const codes = module.part('qweight', ['I32'], [k / inWord, rows]);
        const zeros = module.part('qzeros', ['I32'], [groups, rows / inWord]);
        const scales = module.scales('scales', [groups, rows]);
        // Without g_idx columns are in order.
        const hasGroups = isOrdered || module.get('g_idx') !== undefined;
        const indices = hasGroups ? module.part('g_idx', ['I32'], [k]) : undefined;
        if (codes === undefined || zeros === undefined || scales === undefined) return undefined;
        if (hasGroups && indices === undefined) return undefined;
        return {
          scheme,
          encoding: {
            kind: 'codes',
            codes: wordCodes(CODES[bits], 'row', true),
            scales: { type: scales.type, blockRows: 1, blockColumns: group, isTransposed: true },
            zero: {
              kind: 'stored',
              codes: wordCodes(CODES[bits], 'column', true),
              added: format === 'gptq' ? 1 : 0,
            },
            hasGroups,
          },
          parts: { codes, scales: scales.part, zeros, ...defined({ groups: indices }) },
        };
      },
    };
  },
};
