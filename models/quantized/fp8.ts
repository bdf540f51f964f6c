/**
 * FP8 (E4M3) as vLLM, transformers, FBGEMM and ModelOpt write it: `weight` [rows, k] with `weight_scale`, one for the
 * matrix or for each projection of a fused module, or one for each row; or with `weight_scale_inv`, a factor despite
 * its name, for each block of 128 × 128.
 */
import { defined } from '../../system/defined.js';
import type { QuantizationMethod } from './method.js';
import { plainMatrix } from './plainCodes.js';
import { Settings } from './settings.js';

export const fp8: QuantizationMethod = {
  names: ['fp8', 'fbgemm_fp8'],
  read: (config, where) => {
    const settings = new Settings(config, where);
    settings.oneOf(['activation_scheme'], ['dynamic', 'static'], 'dynamic');
    settings.oneOf(['fmt'], ['e4m3'], 'e4m3');
    const block = settings.isGiven('weight_block_size') ? settings.twoSizes('weight_block_size') : undefined;
    return {
      // Rows have scales of their own, which are nearer than a fixed one.
      ...(block === undefined ? { activations: 'fp8' } : {}),
      matrixOf: (module) =>
        plainMatrix(module, block === undefined ? ['weight_scale'] : ['weight_scale_inv', 'weight_scale'], {
          codes: 'F8_E4M3',
          ...defined({ block }),
        }),
    };
  },
};

/** FP8 among the algorithms of ModelOpt. */
export const modelopt: QuantizationMethod = {
  names: ['modelopt'],
  read: (config, where) => {
    new Settings(config, where).oneOf(['quant_algo'], ['FP8']);
    return { activations: 'fp8', matrixOf: (module) => plainMatrix(module, ['weight_scale'], { codes: 'F8_E4M3' }) };
  },
};
