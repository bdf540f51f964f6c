/**
 * FP8 (E4M3) as vLLM, transformers, FBGEMM and ModelOpt write it: `weight` [rows, k] with `weight_scale`, one for the
 * matrix or for each projection of a fused module, or one for each row; or with `weight_scale_inv`, a factor despite
 * its name, for each block of 128 × 128.
 */
import type { QuantisationMethod } from './method.js';
import { plainMatrix } from './plainCodes.js';
import { Settings } from './settings.js';

export const fp8: QuantisationMethod = {
  names: ['fp8', 'fbgemm_fp8'],
  read: (config, where) => {
    const settings = new Settings(config, where);
    settings.oneOf(['activation_scheme'], ['dynamic', 'static'], 'dynamic');
    settings.oneOf(['fmt'], ['e4m3'], 'e4m3');
    const block = blockOf(settings);
    return {
      // Rows have scales of their own, which are nearer than a fixed one.
      ...(block === undefined ? { activations: 'fp8' } : {}),
      matrixOf: (module) =>
        plainMatrix(
          module,
          block === undefined ? ['weight_scale'] : ['weight_scale_inv', 'weight_scale'],
          block === undefined ? {} : { block },
        ),
    };
  },
};

/** FP8 among the algorithms of ModelOpt. */
export const modelopt: QuantisationMethod = {
  names: ['modelopt'],
  read: (config, where) => {
    new Settings(config, where).oneOf(['quant_algo'], ['FP8']);
    return { activations: 'fp8', matrixOf: (module) => plainMatrix(module, ['weight_scale']) };
  },
};

function blockOf(settings: Settings): readonly [number, number] | undefined {
  const key = 'weight_block_size';
  if (!settings.isGiven(key)) return undefined;
  const value = settings.value(key);
  const isBlock =
    Array.isArray(value) && value.length === 2 && value.every((size) => Number.isInteger(size) && size > 0);
  return isBlock ? [value[0] as number, value[1] as number] : settings.refuse(key, 'a list of two sizes');
}
