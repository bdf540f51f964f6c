/** The methods of quantization whose checkpoints can be read. A new one is a file beside these and a line here. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import type { Json } from '../family/model.js';
import { awq } from './awq.js';
import { compressedTensors } from './compressedTensors.js';
import { fp8, modelopt } from './fp8.js';
import { gptq } from './gptq.js';
import type { Quantization, QuantizationMethod } from './method.js';
import { OTHER_WEIGHTS } from './settings.js';

export const METHODS: readonly QuantizationMethod[] = [gptq, awq, compressedTensors, fp8, modelopt];

const SUPPORTED = METHODS.map(({ names }) => names[0]).join(', ');

/** What a configuration of quantized weights says. `fallback`: its method, where it names none. Throws UserError. */
export function readMethod(config: Json, where: string, fallback?: string): Quantization {
  const name = config['quant_method'] ?? fallback;
  const method = METHODS.find(({ names }) => names.some((each) => each === name));
  if (method === undefined)
    throw new UserError(
      `${where}: weights quantized by ${quote(name)} are not supported; supported: ${SUPPORTED}`,
      OTHER_WEIGHTS,
    );
  return method.read(config, where);
}
