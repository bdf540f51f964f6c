/**
 * Layers of a model's own files that predict further tokens (MTP, arXiv:2404.19737, 2412.19437): an ordinary layer of
 * its family behind a matrix that makes one stream of the embedding of the next token and the model's last stream.
 */
import type { Graph, Value } from '../../ir/graph/graph.js';
import { defined } from '../../system/defined.js';
import type { DraftOptions, MtpLayout } from '../model/model.js';
import type { ExpectedTensor } from '../model/tensors.js';
import type { DecoderConfig } from './config.js';
import { buildDraftHead, type HeadBlocks } from './draftHead.js';
import { rotaryTables } from './rope.js';
import { columnsName, decoderTensors, type TensorNames } from './tensors.js';

/** The tensors of the layer, by their names in the model's files. */
export function mtpTensors(config: DecoderConfig, names: TensorNames, layout: MtpLayout): readonly ExpectedTensor[] {
  const { hiddenSize: hidden, layers, vocabSize } = config;
  const own = `${names.layers}.${layers}.`;
  const moved = (name: string): string => `${layout.layer}.${name.slice(own.length)}`;
  const norm = (module: string): ExpectedTensor => ({
    name: `${module}.weight`,
    shape: [hidden],
    role: 'norm',
    neutral: 1 - (config.norm?.offset ?? 0),
  });
  const { head, embedding, projection } = layout;
  const name = `${projection}.weight`;
  const table = (each: string): ExpectedTensor => ({ name: each, shape: [vocabSize, hidden], role: 'matrix' });
  return [
    ...(embedding === undefined ? [] : [table(embedding)]),
    norm(layout.embeddingNorm),
    norm(layout.streamNorm),
    {
      name,
      shape: [hidden, 2 * hidden],
      role: 'matrix',
      parts: [0, 1].map((i) => ({ name: columnsName(name, i), column: i * hidden, width: hidden })),
    },
    ...decoderTensors({ ...config, layers: layers + 1 }, names)
      .filter((tensor) => tensor.name.startsWith(own))
      .map(({ parts, partOf, ...tensor }) => ({
        ...tensor,
        name: moved(tensor.name),
        ...defined({ parts: parts?.map((part) => ({ ...part, name: moved(part.name) })) }),
        ...defined({ partOf: partOf && { ...partOf, name: moved(partOf.name) } }),
      })),
    norm(layout.finalNorm),
    ...(head === undefined ? [] : [table(head)]),
  ];
}

/** The function `draft` of the layer. `shared`: the model's own table of embeddings and head. */
export function buildMtp(
  config: DecoderConfig,
  names: TensorNames,
  layout: MtpLayout,
  shared: { readonly embedding: string; readonly head: string },
  options: DraftOptions,
): Graph {
  const { layers: index, windows, hiddenSize: hidden } = config;
  const { prefix } = options;
  const { attention: own, ffn } = names.norms;
  const stream = (blocks: HeadBlocks, embedding: Value, x: Value): Value => {
    const { b, norm, attention, feedForward, linear, weight, sum } = blocks;
    const inputs = [norm(embedding, layout.embeddingNorm), norm(x, layout.streamNorm)];
    if (layout.isStreamFirst === true) inputs.reverse();
    const first = inputs
      .map((each, i) =>
        linear(each, weight(columnsName(`${layout.projection}.weight`, i), [hidden, hidden]), 'fc_part'),
      )
      .reduce(sum);
    const normed = (v: Value, module?: string): Value =>
      module === undefined ? v : norm(v, `${layout.layer}.${module}`);
    const mid = b.scope('attention', () =>
      sum(first, normed(attention(normed(first, own.before), layout.layer, index), own.after)),
    );
    return b.scope('ffn', () => sum(mid, normed(feedForward(normed(mid, ffn.before), layout.layer, index), ffn.after)));
  };
  const last = ({ norm }: HeadBlocks, h: Value): Value => norm(h, layout.finalNorm);
  return buildDraftHead(
    {
      // One more layer than the model, which sees all keys.
      shape: { ...config, layers: index + 1, ...defined({ windows: windows && [...windows, null] }) },
      width: hidden,
      embedding: layout.embedding === undefined ? shared.embedding : `${prefix}${layout.embedding}`,
      head: layout.head === undefined ? shared.head : `${prefix}${layout.head}`,
      columns: config.vocabSize,
      hidesFirst: layout.hidesFirst === true,
      stream,
      normed: last,
      ...(layout.goesOnNormed === true ? { own: last } : {}),
    },
    { ...options, names, ...rotaryTables(config) },
  );
}
