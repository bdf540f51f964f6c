/** The families of models that are read, and which of them a config.json names. A new one is a record in a list. */
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { HeadRecord } from '../heads/head.js';
import { findHead } from '../heads/records.js';
import type { Architecture, Json } from '../model/model.js';
import { FAMILIES_HINT, otherKind } from '../model/refusals.js';
import { ALIBI_FAMILIES } from './alibi.js';
import { DEEPSEEK_FAMILIES } from './deepseek.js';
import { DENSE_FAMILIES } from './dense.js';
import { EXPERT_FAMILIES } from './experts.js';
import { GEMMA_FAMILIES } from './gemma.js';
import { GPT_OSS_FAMILIES } from './gptOss.js';
import { LAYER_NORM_FAMILIES } from './layerNorm.js';
import { LLAMA4_FAMILIES } from './llama4.js';
import { LLAMA_FAMILIES } from './llama.js';
import { PHI_MOE_FAMILIES } from './phiMoe.js';
import { POSITION_FAMILIES } from './positions.js';
import { QWEN_FAMILIES } from './qwen.js';
import { RECURRENT_FAMILIES } from './recurrent.js';

export const ARCHITECTURES: readonly Architecture[] = [
  ...LLAMA_FAMILIES,
  ...DENSE_FAMILIES,
  ...QWEN_FAMILIES,
  ...LAYER_NORM_FAMILIES,
  ...GEMMA_FAMILIES,
  ...EXPERT_FAMILIES,
  ...POSITION_FAMILIES,
  ...RECURRENT_FAMILIES,
  ...GPT_OSS_FAMILIES,
  ...ALIBI_FAMILIES,
  ...LLAMA4_FAMILIES,
  ...DEEPSEEK_FAMILIES,
  ...PHI_MOE_FAMILIES,
];

const FAMILY_NAMES = ARCHITECTURES.map(({ name }) => name);

/** The family that a config.json names, and what to tell users of it. */
export interface NamedFamily {
  readonly family: Architecture;
  /** Why it is this one, where the file also names another; one line. */
  readonly note?: string;
  /** The class, where it is that of a model without a head: `LlamaModel`. */
  readonly headless?: string;
  /** The class's head, where it is none of the vocabulary. */
  readonly head?: HeadRecord;
}

/** The first entry of `architectures`. */
export const classOf = ({ architectures }: Json): unknown =>
  Array.isArray(architectures) ? (architectures as unknown[])[0] : architectures;

/** What a model that is not read is, as far as its file tells. */
export function unsupported(config: Json, where: string): UserError {
  const [first, modelType] = [classOf(config), config['model_type']];
  const kind = otherKind(modelType, first);
  const named = isGiven(first) ? `architecture ${quote(first)}` : `model_type ${quote(modelType)}`;
  const what = kind === undefined ? '' : `: it is ${kind.is}`;
  return new UserError(`${where}: ${named} is not supported${what}`, FAMILIES_HINT);
}

/** For a file that names no family. Parts of diffusion pipelines name their class in another way. */
function unnamed({ _class_name: part }: Json, where: string): UserError {
  const what = typeof part === 'string' ? `: it is a part of a diffusion pipeline, ${quote(part)}` : '';
  return new UserError(`${where}: neither architectures nor model_type is given${what}`, FAMILIES_HINT);
}

/** How classes of whole language models are called. */
const WHOLE = /LM(?:Head(?:Model)?)?$/;
/** The class of a family's model without its head. */
const isBase = (name: string, family: Architecture): boolean =>
  ['Model', 'TextModel'].some((end) => family.name.replace(/(?:ForCausalLM|LMHeadModel)$/, end) === name);

/** Whether the checkpoint brings the code of its class. */
function bringsCode(config: Json, name: string): boolean {
  const { auto_map: map } = config;
  return isRecord(map) && Object.values(map).some((each) => typeof each === 'string' && each.endsWith(`.${name}`));
}

/**
 * The family of a file whose class is none of those that are known. transformers goes by model_type alone; here the
 * class must at least be that of a language model, and its code not be the checkpoint's own.
 */
function byType(family: Architecture, config: Json, where: string, isInside: boolean): NamedFamily {
  const first = classOf(config);
  const name = typeof first === 'string' ? first : '';
  const isHeadless = isBase(name, family);
  const kind = otherKind(undefined, name);
  const isOther = kind !== undefined && !(isInside && kind.wrapsOne === true);
  if (!isHeadless && (isOther || !WHOLE.test(name))) throw unsupported(config, where);
  if (bringsCode(config, name))
    throw new UserError(
      `${where}: architecture ${quote(first)} is code that comes with the checkpoint (auto_map), which is never run ` +
        `and may compute something else than ${family.name}`,
      FAMILIES_HINT,
    );
  const note = `${where}: architecture ${quote(first)} is not known; read as ${family.name}, by its model_type`;
  return { family, note, ...(isHeadless ? { headless: name } : {}) };
}

/**
 * The family that a config.json names: by `architectures[0]`, or by `model_type` where that is no name of a family, as
 * transformers does. A class with another head is only found by its name: `model_type` says nothing of heads.
 * `isInside`: it is the text_config of a multimodal model. Throws UserError.
 */
export function findArchitecture(config: Json, where: string, isInside = false): NamedFamily {
  const { model_type: modelType } = config;
  const first = classOf(config);
  if (!isGiven(first) && !isGiven(modelType)) throw unnamed(config, where);
  const other = isInside ? undefined : findHead(first, FAMILY_NAMES);
  const wanted = other?.family ?? first;
  const named = ARCHITECTURES.find(
    ({ name, otherNames }) => name === wanted || otherNames?.some((each) => each === wanted) === true,
  );
  const typed = ARCHITECTURES.find(
    (family) => family.modelType === modelType || family.otherModelTypes?.some((type) => type === modelType) === true,
  );
  if (named !== undefined && isGiven(modelType) && named !== typed)
    if (otherKind(modelType, undefined) !== undefined) throw unsupported(config, where);
    else
      throw new UserError(
        `${where}: model_type ${quote(modelType)} does not belong to ${String(first)}, ` +
          `whose model_type is "${named.modelType}"`,
      );
  const family = named ?? typed;
  if (family === undefined) throw unsupported(config, where);
  if (other !== undefined) return { family, head: other.record };
  return named !== undefined || !isGiven(first) ? { family } : byType(family, config, where, isInside);
}
