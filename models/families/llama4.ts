/** Llama 4 (Meta, 2025), text: chunks of keys, layers without rotary embedding, experts whose inputs are scaled. */
import { isGiven, quote } from '../../system/json.js';
import { QWEN_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

const MAX_WIDTH = 1 << 19;

/** Whether each layer turns: 1 in no_rope_layers, else all but every no_rope_layer_interval-th. */
function turned(read: ConfigReader): readonly boolean[] {
  const all = read.layers();
  const { no_rope_layers: marks } = read.json;
  if (isGiven(marks) && !(Array.isArray(marks) && marks.length === 0)) {
    if (!Array.isArray(marks) || marks.length < all.length || !marks.every((mark) => mark === 0 || mark === 1))
      read.fail(`no_rope_layers: expected a list of 0 and 1 for ${all.length} layers, got ${quote(marks, 60)}`);
    return all.map((layer) => marks[layer] === 1);
  }
  const interval = read.whole('no_rope_layer_interval', 4, [1, 1024]);
  return all.map((layer) => (layer + 1) % interval !== 0);
}

/** Whether each layer's queries see keys of their own chunk only. */
function chunkedLayers(read: ConfigReader, turns: readonly boolean[]): readonly boolean[] {
  const { layer_types: types } = read.json;
  if (!isGiven(types)) return turns;
  const isKnown = (type: unknown): boolean => type === 'chunked_attention' || type === 'full_attention';
  if (!Array.isArray(types) || types.length !== turns.length || !types.every(isKnown))
    read.fail(
      `layer_types: expected a list of chunked_attention and full_attention for ${turns.length} layers, ` +
        `got ${quote(types, 60)}`,
    );
  return types.map((type) => type === 'chunked_attention');
}

/** Layers without experts. */
function denseLayers(read: ConfigReader): readonly number[] {
  const all = read.layers();
  const { moe_layers: listed } = read.json;
  if (isGiven(listed)) {
    // As in transformers, numbers past the last layer say nothing.
    const isLayer = (each: unknown): boolean => Number.isSafeInteger(each) && Number(each) >= 0;
    if (!Array.isArray(listed) || listed.length > 1024 || !listed.every(isLayer))
      read.fail(`moe_layers: expected a list of layers, got ${quote(listed, 60)}`);
    return all.filter((layer) => !listed.includes(layer));
  }
  const step = read.whole('interleave_moe_layer_step', 1, [1, 1024]);
  return all.filter((layer) => (layer + 1) % step !== 0);
}

export const LLAMA4_FAMILIES = [
  decoderFamily({
    name: 'Llama4ForCausalLM',
    modelType: 'llama4_text',
    covers: 'Llama 4 Scout and Maverick, text',
    maxPositions: 131_072,
    headDim: 128,
    kvHeads: 8,
    theta: 500_000,
    epsilon: 1e-5,
    hasInterleavedPairs: true,
    names: {
      ...LLAMA_NAMES,
      projections: {
        ...LLAMA_NAMES.projections,
        gate: 'feed_forward.gate_proj',
        up: 'feed_forward.up_proj',
        down: 'feed_forward.down_proj',
      },
      experts: {
        ...QWEN_EXPERTS,
        router: 'feed_forward.router',
        expert: 'feed_forward.experts',
        shared: 'feed_forward.shared_expert',
        sharedGate: 'feed_forward.shared_expert_gate',
      },
    },
    differences: (read) => {
      const turns = turned(read);
      const isChunked = chunkedLayers(read, turns);
      const { rope_scaling: scaling, rope_parameters: rope } = read.json;
      for (const each of [scaling, rope]) {
        const type = (each as Readonly<Record<string, unknown>> | null | undefined)?.['rope_type'];
        if (type === 'yarn' || type === 'longrope')
          read.fail(`rope type ${quote(type)} is not supported where heads are normed behind rotary embedding`);
      }
      const width =
        read.json['attention_chunk_size'] === null ? 0 : read.whole('attention_chunk_size', 8192, [1, 1 << 24]);
      const experts = read.experts({
        count: ['num_local_experts'],
        width: 'intermediate_size',
        sharedWidth: 'intermediate_size',
        defaults: { count: 16, chosen: 1, width: 8192, sharedWidth: 8192 },
      });
      const dense = denseLayers(read);
      const unrotated = read.layers().filter((layer) => turns[layer] === false);
      return {
        biased: read.attentionBiases(),
        experts: {
          ...experts,
          isNormalized: experts.chosen === 1,
          routing: { scores: 'sigmoid' },
          scalesInputs: true,
          hasSharedGate: false,
          ...(dense.length === 0 ? {} : { dense }),
        },
        denseWidth: read.whole('intermediate_size_mlp', 16_384, [1, MAX_WIDTH]),
        ...(read.flag('use_qk_norm', true) ? { qkNorm: 'unit head' } : {}),
        ...(unrotated.length === 0 ? {} : { unrotated }),
        ...(width > 0 && isChunked.includes(true) ? { chunks: isChunked.map((is) => (is ? width : null)) } : {}),
        ...(read.flag('attn_temperature_tuning', true)
          ? {
              temperature: {
                every: read.number('floor_scale', 8192, [1, 1 << 24]),
                by: read.number('attn_scale', 0.1, [0, 1e3]),
                from: 1,
                layers: 'unrotated',
              },
            }
          : {}),
      };
    },
  }),
] as const;
