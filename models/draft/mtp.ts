/** Layers of a model's own files that predict further tokens: which of the published layouts they have. */
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { isFolder } from '../../system/read.js';
import { type Checkpoint, checkTensors } from '../checkpoint.js';
import { readConfig } from '../config.js';
import { DRAFT_TENSORS, type MtpLayout } from '../model/model.js';
import { placesOf, type StoredTensor } from '../model/tensors.js';
import { randomTensors } from '../randomCheckpoint.js';
import { readWeightFiles } from '../weights/weightFiles.js';
import { type FoundDraft, joinedTensors } from './join.js';

/** What a user says for the model's own layer. */
export const OWN_LAYER = 'mtp';

const HINT = 'give the folder of a draft model or of a draft head, or generate without one: --draft suffix';

/** In the order in which files are searched. `n`: layers of the model. */
const layoutsOf = (n: number): readonly MtpLayout[] => [
  // Qwen's.
  {
    layer: 'mtp.layers.0',
    embeddingNorm: 'mtp.pre_fc_norm_embedding',
    streamNorm: 'mtp.pre_fc_norm_hidden',
    projection: 'mtp.fc',
    finalNorm: 'mtp.norm',
    goesOnNormed: true,
  },
  // MiMo's.
  {
    layer: 'model.mtp_layers.0',
    embeddingNorm: 'model.mtp_layers.0.token_layernorm',
    streamNorm: 'model.mtp_layers.0.hidden_layernorm',
    projection: 'model.mtp_layers.0.input_proj',
    finalNorm: 'model.mtp_layers.0.final_layernorm',
    isStreamFirst: true,
    goesOnNormed: true,
    hidesFirst: true,
  },
  // DeepSeek's.
  {
    layer: `model.layers.${n}`,
    embedding: `model.layers.${n}.embed_tokens.weight`,
    embeddingNorm: `model.layers.${n}.enorm`,
    streamNorm: `model.layers.${n}.hnorm`,
    projection: `model.layers.${n}.eh_proj`,
    finalNorm: `model.layers.${n}.shared_head.norm`,
    head: `model.layers.${n}.shared_head.head.weight`,
    hidesFirst: true,
  },
];

/** The first layer that the files have, as it drafts for the model. Throws UserError where they have none. */
export function mtp(target: Checkpoint, seed?: number | bigint): FoundDraft {
  const { path, config, model } = target;
  const none = (problem: string): UserError => new UserError(`${path}: cannot draft by itself: ${problem}`, HINT);
  if (model.mtp === undefined) throw none('a model of this kind has no layer that predicts further tokens');
  if (target.quantized !== undefined || !isFolder(path)) throw none('layers of quantized files are not supported');
  const layouts = layoutsOf(config.layers);
  const found = new Map<string, StoredTensor>();
  let layout = layouts.at(-1)!;
  if (seed === undefined) {
    for (const { file, entries } of readWeightFiles(resolve(path)).headers)
      for (const entry of entries) found.set(entry.name, { ...entry, file });
    const own = layouts.find(({ projection }) => found.has(`${projection}.weight`));
    if (own === undefined) throw none('its files have no layer that predicts further tokens');
    // Copies of what the model has, where they are left out.
    layout = { ...own, embedding: held(own.embedding, found), head: held(own.head, found) };
  } else if (!(Number(readConfig(target.configPath)['num_nextn_predict_layers']) > 0))
    throw none('num_nextn_predict_layers does not say that it has a layer that predicts further tokens');
  const { tensors, graph } = model.mtp(layout);
  const wanted = { tensors, isIgnored: () => true };
  const problems = seed === undefined ? checkTensors(wanted, found) : [];
  if (problems.length > 0) throw none(`the weights are not those of such a layer:\n  ${problems.join('\n  ')}`);
  const places = tensors.flatMap(({ name, parts }) => {
    const stored = found.get(name);
    return stored === undefined ? [] : placesOf({ ...stored, name }, parts);
  });
  return {
    draft: {
      name: 'mtp',
      ahead: 1,
      maxPositions: config.maxPositions,
      vocabSize: config.vocabSize,
      features: { width: config.hiddenSize, of: 'normed', build: (_, [x]) => x! },
      config: { kind: 'mtp', ...layout },
      summary: `layer ${layout.layer} of the model's own files`,
      tensors: joinedTensors(tensors),
      graph: (options) => graph({ ...options, prefix: DRAFT_TENSORS }),
    },
    tensors:
      seed === undefined
        ? new Map(places.map((place) => [place.name, place]))
        : randomTensors(tensors, seed, config.dtype),
    warnings: [],
  };
}

const held = (name: string | undefined, found: ReadonlyMap<string, unknown>): string | undefined =>
  name !== undefined && found.has(name) ? name : undefined;
