/** The families of models that the compiler knows. A new one is a folder beside these and a line here. */
import { UserError } from '../errors.js';
import { isGiven, quote } from '../system/json.js';
import { cohere2 } from './cohere2/index.js';
import { gemma } from './gemma/index.js';
import { gemma2 } from './gemma2/index.js';
import { gemma3 } from './gemma3/index.js';
import { gptNeox } from './gptNeox/index.js';
import { granite } from './granite/index.js';
import { llama } from './llama/index.js';
import { mixtral } from './mixtral/index.js';
import type { Architecture, Json } from './family/model.js';
import { mistral } from './mistral/index.js';
import { olmo2 } from './olmo2/index.js';
import { olmo3 } from './olmo3/index.js';
import { phi3 } from './phi3/index.js';
import { qwen2 } from './qwen2/index.js';
import { qwen2Moe } from './qwen2Moe/index.js';
import { qwen3Moe } from './qwen3Moe/index.js';
import { qwen3 } from './qwen3/index.js';
import { smollm3 } from './smollm3/index.js';
import { stablelm } from './stablelm/index.js';

export const ARCHITECTURES: readonly Architecture[] = [
  llama,
  mistral,
  qwen2,
  qwen3,
  olmo2,
  olmo3,
  phi3,
  granite,
  smollm3,
  stablelm,
  gptNeox,
  gemma,
  gemma2,
  gemma3,
  cohere2,
  mixtral,
  qwen2Moe,
  qwen3Moe,
];

const SUPPORTED = `supported: ${ARCHITECTURES.map(({ name, covers }) => `${name} (${covers})`).join(', ')}`;

/** The family that a config.json names, by `architectures[0]`, else by `model_type`. Throws UserError. */
export function findArchitecture(config: Json, where: string): Architecture {
  const { architectures, model_type: modelType } = config;
  const first: unknown = Array.isArray(architectures) ? architectures[0] : architectures;
  if (!isGiven(first) && !isGiven(modelType))
    throw new UserError(`${where}: neither architectures nor model_type is given; ${SUPPORTED}`);
  const found = ARCHITECTURES.find((family) =>
    isGiven(first) ? family.name === first : family.modelType === modelType,
  );
  if (found === undefined) {
    const named = isGiven(first) ? `architecture ${quote(first)}` : `model_type ${quote(modelType)}`;
    throw new UserError(`${where}: ${named} is not supported; ${SUPPORTED}`);
  }
  if (isGiven(modelType) && modelType !== found.modelType)
    throw new UserError(
      `${where}: model_type ${quote(modelType)} does not belong to ${found.name}, ` +
        `whose model_type is "${found.modelType}"`,
    );
  return found;
}
