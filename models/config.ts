/** config.json of a Hugging Face checkpoint: the model that it describes. */
import { join } from 'node:path';
import { UserError } from '../errors.js';
import { isRecord, quote } from '../system/json.js';
import { fileSize, readJsonObject } from '../system/read.js';
import type { Model } from './family/model.js';
import { findArchitecture } from './registry.js';
import type { FormatName } from '../ir/storage.js';

const CONFIG_BYTES = 1 << 20;
const WANTED = 'give the folder of a Hugging Face checkpoint: config.json and *.safetensors';
const OTHER_MODEL =
  'use the Hugging Face checkpoint of a supported model; if this is one, download its config.json again';

/**
 * The model that a parsed config.json describes. `where` (its path) starts every message. `fallbackDType` is the
 * element type of the weights if the file names none. Throws UserError, one line.
 */
export function describeModel(json: unknown, where: string, fallbackDType: FormatName = 'f32'): Model {
  if (!isRecord(json)) throw new UserError(`${where}: expected a JSON object, got ${quote(json)}`);
  return findArchitecture(json, where).describe(json, where, fallbackDType);
}

/** The model of the config.json at `path`. Throws UserError if the file is missing or the model is not supported. */
export function readModel(path: string, fallbackDType?: FormatName): Model {
  const { value } = readJsonObject(path, CONFIG_BYTES, WANTED);
  try {
    return describeModel(value, path, fallbackDType);
  } catch (error) {
    throw error instanceof UserError && error.hint === undefined
      ? new UserError(error.message, OTHER_MODEL, { cause: error })
      : error;
  }
}

/**
 * The model of the checkpoint folder `dir`. Throws UserError if its config.json is missing or the model is not
 * supported.
 */
export function loadModel(dir: string, fallbackDType?: FormatName): Model {
  const path = join(dir, 'config.json');
  if (fileSize(path) === undefined && fileSize(join(dir, 'params.json')) !== undefined) {
    throw new UserError(
      `${dir}: this is Meta's own layout (params.json), which is not supported yet`,
      'use the Hugging Face copy of the model (config.json and *.safetensors)',
    );
  }
  return readModel(path, fallbackDType);
}
