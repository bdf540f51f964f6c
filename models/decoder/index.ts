/** Decoders of LLaMA's kind. A family is a name, a few defaults, and the reading of its own keys in config.json. */
import type { Architecture, Json } from '../family/model.js';
import { parseDecoderConfig, type DecoderConfig, type Differences, type FamilyConfig } from './config.js';
import { buildDecoder, buildStep } from './graph.js';
import { rotaryTable } from './rope.js';
import { decoderTensors, isIgnoredTensor } from './tensors.js';

export interface DecoderFamily
  extends Pick<Architecture, 'name' | 'modelType' | 'covers'>, Omit<FamilyConfig, 'architecture' | 'differences'> {
  /** Reads the family's own keys. Throws UserError if a setting is not supported. */
  readonly differences: (json: Json, where: string) => Differences;
}

export function decoderFamily(family: DecoderFamily): Architecture<DecoderConfig> {
  const { name, modelType, covers, differences, ...defaults } = family;
  return {
    name,
    modelType,
    covers,
    describe: (json, where, fallbackDType) => {
      const config = parseDecoderConfig(json, where, fallbackDType, {
        ...defaults,
        architecture: name,
        differences: differences(json, where),
      });
      return {
        config,
        summary: summarise(config),
        tensors: decoderTensors(config),
        isIgnored: (tensor) => isIgnoredTensor(tensor, config),
        graph: (options) => buildDecoder(config, { ...options, rotary: rotaryTable(config) }),
        step: (options) => buildStep(config, { ...options, rotary: rotaryTable(config) }),
      };
    },
  };
}

function summarise({ hiddenSize, intermediateSize, layers, heads, headDim, kvHeads, ...rest }: DecoderConfig): string {
  return [
    `hidden ${hiddenSize}, feed-forward ${intermediateSize}, ${layers} layers`,
    `${heads} heads of ${headDim}, ${kvHeads} key/value heads`,
    ...(rest.biased.length === 0 ? [] : [`biases on ${rest.biased.join(', ')}`]),
    ...(rest.headNorms === true ? ['norms of each head of q and k'] : []),
    ...(rest.unrotated === undefined ? [] : [`layers without rotary embedding: ${rest.unrotated.length}`]),
    ...(rest.factors === undefined ? [] : ['factors on embeddings, residuals, scores and logits']),
    ...(rest.tieWordEmbeddings ? ['head tied to the embedding'] : []),
  ].join(', ');
}
