/** The model that config.json of a Hugging Face checkpoint describes, or params.json of one as Meta publishes it. */
import { dirname, join } from 'node:path';
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { isRecord, quote } from '../system/json.js';
import { fileSize, readJsonObject } from '../system/read.js';
import type { Json, Model, StoredWays } from './family/model.js';
import { FAMILIES_HINT, refuseDraft, requireWholeModel } from './family/wholeModel.js';
import { meta } from './meta/index.js';
import { countParts, FIRST_PART } from './meta/partFiles.js';
import { configOfParams, inParamsWords, isMetaParams } from './meta/params.js';
import { besideSteps, refuseOtherFolder } from './otherFolders.js';
import { otherKind } from './otherModels.js';
import { classOf, findArchitecture, unsupported } from './registry.js';
import { readTorchFile } from './torch/stateDict.js';
import type { FormatName } from '../ir/storage.js';
import { textConfig } from './wrapper.js';

const CONFIG_BYTES = 1 << 20;
const WANTED = 'give the folder of a Hugging Face checkpoint: config.json and *.safetensors';
const OTHER_SETTING = `${FAMILIES_HINT}; if config.json is damaged, download it again`;

/**
 * The model that a parsed config.json or params.json describes, or the language model of a multimodal one. `where` (its
 * path) starts every message. `fallbackDType` is the element type of the weights if the file names none. `rows`: those
 * of the embedding table, for a params.json that leaves them to the tokenizer. Throws UserError, one line.
 */
export function describeModel(json: unknown, where: string, fallbackDType: FormatName = 'f32', rows?: number): Model {
  if (!isRecord(json)) throw new UserError(`${where}: expected a JSON object, got ${quote(json)}`);
  if (isMetaParams(json)) return describeMeta(json, where, fallbackDType, rows);
  refuseDraft(json, where);
  const text = textConfig(json, where);
  if (text !== undefined) return describeWrapped(json, text, where, fallbackDType);
  const { family, note, headless } = findArchitecture(json, where);
  const model = family.describe(json, where, fallbackDType);
  if (headless !== undefined && model.tied === undefined)
    throw new UserError(
      `${where}: architecture ${quote(headless)} is a model without a head, as models for embeddings are, ` +
        'and tie_word_embeddings does not say that its embeddings are one',
      FAMILIES_HINT,
    );
  return { ...model, ...defined({ note, headless }) };
}

/** The language model of a multimodal one, whose own class is not that of a language model. */
function describeWrapped(json: Json, text: Json, where: string, fallbackDType: FormatName): Model {
  const kind = otherKind(json['model_type'], classOf(json));
  if (kind !== undefined && kind.wrapsOne !== true) throw unsupported(json, where);
  requireWholeModel(json, where);
  const place = `${where}: text_config`;
  const { family, note } = findArchitecture(text, place, true);
  const model = wrapped(family.describe({ ...family.textDefaults, ...text }, place, fallbackDType));
  return note === undefined ? model : { ...model, note };
}

function describeMeta(json: Json, where: string, fallbackDType: FormatName, rows: number | undefined): Model {
  try {
    return meta.describe(configOfParams(json, where, rows), where, fallbackDType);
  } catch (error) {
    if (!(error instanceof UserError) || !error.message.startsWith(where)) throw error;
    const problem = error.message.slice(where.length);
    throw new UserError(`${where}${inParamsWords(problem)}`, error.hint, { cause: error });
  }
}

const wrapped = ({ tied, ...model }: Model): Model => ({
  ...model,
  summary: `the language model of a multimodal one, ${model.summary}`,
  isWrapped: true,
  ...(tied === undefined ? {} : { tied: { ...tied, untied: () => wrapped(tied.untied()) } }),
});

/** The model that the metadata of a GGUF file describes, in the words of config.json. Throws UserError, one line. */
export const describeGgufModel = (json: Json, where: string, fallbackDType: FormatName, ways: StoredWays): Model =>
  findArchitecture(json, where).family.describe(json, where, fallbackDType, ways);

/** The JSON of the file at `path`. Throws UserError. */
export const readConfig = (path: string): Json => readJsonObject(path, CONFIG_BYTES, WANTED).value;

/** The model of the file at `path`. Throws UserError if the file is missing or the model is not supported. */
export function readModel(path: string, fallbackDType?: FormatName): Model {
  const value = readConfig(path);
  try {
    const rows =
      isMetaParams(value) && value['vocab_size'] === -1 ? embeddingRows(dirname(path), value['dim']) : undefined;
    return besideSteps(dirname(path), describeModel(value, path, fallbackDType, rows));
  } catch (error) {
    throw error instanceof UserError && error.hint === undefined
      ? new UserError(error.message, OTHER_SETTING, { cause: error })
      : error;
  }
}

/**
 * Rows of the embedding table in a folder as Meta publishes it; undefined if there are no weights. Of a model in parts,
 * each has some columns of it, or some rows.
 */
function embeddingRows(dir: string, hidden: unknown): number | undefined {
  const path = join(dir, FIRST_PART);
  if (fileSize(path) === undefined) return undefined;
  const shape = readTorchFile(path).entries.find(({ name }) => name === 'tok_embeddings.weight')?.shape;
  return shape?.[1] === hidden && shape?.[0] !== undefined ? shape[0] * countParts(dir) : shape?.[0];
}

/** The file that describes the model in `dir`: params.json only if there is no config.json. */
export function configPathOf(dir: string): string {
  const [config, params] = [join(dir, 'config.json'), join(dir, 'params.json')];
  return fileSize(config) === undefined && fileSize(params) !== undefined ? params : config;
}

/**
 * The model of the checkpoint folder `dir`. Throws UserError if it has no description or the model is not supported.
 */
export function loadModel(dir: string, fallbackDType?: FormatName): Model {
  const path = configPathOf(dir);
  refuseOtherFolder(dir, path);
  return readModel(path, fallbackDType);
}
