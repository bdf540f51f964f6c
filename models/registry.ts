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
import { starcoder2 } from './starcoder2/index.js';

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
  starcoder2,
  gptNeox,
  gemma,
  gemma2,
  gemma3,
  cohere2,
  mixtral,
  qwen2Moe,
  qwen3Moe,
];

/** Names that a message about an unknown one shows. */
const SHOWN = 3;

/** Pairs of letters and digits that follow each other, whatever their case. */
function pairsOf(name: string): ReadonlySet<string> {
  const plain = name.toLowerCase().replace(/[^a-z0-9]/g, '');
  return new Set(Array.from({ length: Math.max(0, plain.length - 1) }, (_, i) => plain.slice(i, i + 2)));
}

/** The names among `known` that share most pairs with `name` for their length. */
function nearest(name: string, known: readonly string[]): string {
  const own = pairsOf(name.slice(0, 200));
  const likeness = (other: string): number => {
    const pairs = pairsOf(other);
    return [...pairs].filter((pair) => own.has(pair)).length / (own.size + pairs.size);
  };
  const shown = known.toSorted((a, b) => likeness(b) - likeness(a)).slice(0, SHOWN);
  return `the nearest of the ${known.length} that are: ${shown.join(', ')}`;
}

/** The family that a config.json names, and what to tell users of it. */
export interface NamedFamily {
  readonly family: Architecture;
  /** Why it is this one, where the file also names another; one line. */
  readonly note?: string;
}

/**
 * The family that a config.json names: by `architectures[0]`, or by `model_type` where that is no name of a family, as
 * transformers does. Throws UserError.
 */
export function findArchitecture(config: Json, where: string): NamedFamily {
  const { architectures, model_type: modelType } = config;
  const first: unknown = Array.isArray(architectures) ? architectures[0] : architectures;
  if (!isGiven(first) && !isGiven(modelType))
    throw new UserError(`${where}: neither architectures nor model_type is given`);
  const named = ARCHITECTURES.find(({ name }) => name === first);
  const typed = ARCHITECTURES.find((family) => family.modelType === modelType);
  if (named !== undefined && isGiven(modelType) && named !== typed)
    throw new UserError(
      `${where}: model_type ${quote(modelType)} does not belong to ${named.name}, ` +
        `whose model_type is "${named.modelType}"`,
    );
  const family = named ?? typed;
  if (family === undefined) {
    const [key, name, known] = isGiven(first)
      ? ['architecture', first, ARCHITECTURES.map((each) => each.name)]
      : ['model_type', modelType, ARCHITECTURES.map((each) => each.modelType)];
    const near = typeof name === 'string' ? `; ${nearest(name, known)}` : '';
    throw new UserError(`${where}: ${key} ${quote(name)} is not supported${near}`);
  }
  if (named !== undefined || !isGiven(first)) return { family };
  const note = `${where}: architecture ${quote(first)} is not known; read as ${family.name}, by its model_type`;
  return { family, note };
}
