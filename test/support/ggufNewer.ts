/**
 * Converts small models of newer families to GGUF for tests, as the converters of llama.cpp do. Written from those
 * converters' facts, apart from the reader.
 */
import { FORMATS } from '../../ir/storage.js';
import type { Json } from '../../models/model/model.js';
import { GGUF_TYPES, type GgufPairs, type GgufTensor, type GgufValue, type PlainTensor } from './gguf.js';
import { CONVERTERS, f, headDimOf, type Names, numberOf, u } from './ggufConverters.js';

const COMMON: Names = [
  [/^(?:model\.embed_tokens|transformer\.wte|transformer\.word_embeddings|backbone\.embeddings)\./, 'token_embd.'],
  [/^transformer\.wpe\./, 'position_embd.'],
  [/^transformer\.word_embeddings_layernorm\./, 'token_embd_norm.'],
  [/^model\.embedding_norm\./, 'token_embd_norm.'],
  [/^(?:model\.(?:norm|final_layernorm)|transformer\.(?:ln_f|norm_f)|backbone\.norm_f)\./, 'output_norm.'],
  [/^lm_head\./, 'output.'],
  [/^(?:model\.layers|transformer\.(?:h|blocks)|backbone\.layers)\.(\d+)\./, 'blk.$1.'],
  [/(?:attn\.c_attn|attn\.Wqkv|self_attention\.query_key_value)/, 'attn_qkv'],
  [/(?:self_attn\.(?:o_proj|dense|out_proj)|attn\.(?:c_proj|out_proj)|self_attention\.dense)/, 'attn_output'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.([qk])_(?:norm|layernorm)/, 'attn_$1_norm'],
  [/self_attn\.(query|key)_layernorm/, 'attn_$1_norm'],
  [/attn_query_norm/, 'attn_q_norm'],
  [/attn_key_norm/, 'attn_k_norm'],
  [/\.(?:input_layernorm|attention_layernorm|operator_norm|ln_1|norm_1)\./, '.attn_norm.'],
  [/\.(?:post_attention_layernorm|feedforward_layernorm|ln_2|norm_2)\./, '.ffn_norm.'],
  [/mlp\.experts\.(\d+)\.(gate|up|down)_proj/, 'ffn_$2_exps.$1'],
  [/mlp\.shared_experts?\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
  [/mlp\.shared_expert_gate/, 'ffn_gate_inp_shexp'],
  [/mlp\.gate\.weight/, 'ffn_gate_inp.weight'],
  [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
  [/(?:mlp\.(?:c_fc|fc1|gate_up_proj|dense_h_to_4h)|ffn\.up_proj)/, 'ffn_up'],
  [/(?:mlp\.(?:c_proj|fc2|dense_4h_to_h)|ffn\.down_proj)/, 'ffn_down'],
  [/(?:mlp|feed_forward)\.(gate|up|down)_proj/, 'ffn_$1'],
];

const nameOf = (name: string, own: Names): string =>
  [...own, ...COMMON].reduce((text, [from, to]) => text.replace(from, to), name);

/** The tensors of a model of one of these families. Vectors are F32, as converters write them, matrices BF16. */
export function newerTensors(tensors: readonly PlainTensor[], json: Json): GgufTensor[] {
  const { names = [], change = (tensor) => [tensor] } = CONVERTERS[String(json['model_type'])]!;
  const groups = new Map<string, { shape: readonly number[]; values: number[]; count: number }>();
  for (const tensor of tensors.flatMap((each) => change(each, json))) {
    const [, module, after] = /^(.+_(?:exps|k_b|v_b))\.\d+\.(\w+)$/.exec(nameOf(tensor.name, names)) ?? [];
    const isEach = module !== undefined;
    const name = isEach ? `${module}.${after}` : nameOf(tensor.name, names);
    const { values, count, shape: before = [0] } = groups.get(name) ?? { values: [], count: 0 };
    const [rows = 0, ...columns] = tensor.shape;
    const shape = isEach ? [count + 1, ...tensor.shape] : [before[0]! + rows, ...columns];
    groups.set(name, { shape, values: [...values, ...tensor.values], count: count + 1 });
  }
  return [...groups].map(([name, { shape: full, values }]) => {
    // Converters leave out the one row of a shared expert's gate.
    const shape = name.includes('ffn_gate_inp_shexp') ? full.slice(1) : full;
    const isVector = shape.length === 1 || /_norm|ffn_gate_inp\.|\.bias$|ssm_(?:a|d|conv1d)|shortconv\.conv/.test(name);
    const type = isVector ? 'F32' : 'BF16';
    return {
      name,
      shape,
      type: GGUF_TYPES[type],
      bytes: Buffer.from(FORMATS[isVector ? 'f32' : 'bf16'].encode(Float64Array.from(values))),
    };
  });
}

const attentionPairs = (json: Json): Readonly<Record<string, GgufValue>> => ({
  'attention.head_count_kv': u(json['num_key_value_heads']),
  'attention.key_length': u(headDimOf(json)),
  'attention.value_length': u(headDimOf(json)),
  'rope.freq_base': f(json['rope_theta']),
  'rope.dimension_count': u(headDimOf(json) * ((json['partial_rotary_factor'] as number | undefined) ?? 1)),
});

/** The metadata of a model, without a tokenizer. `tensors`: xIELU's numbers are there. */
export function newerPairs(json: Json, tensors: readonly PlainTensor[]): GgufPairs {
  const { architecture, pairs: own } = CONVERTERS[String(json['model_type'])]!;
  const layers = numberOf(json, 'num_hidden_layers');
  const further = own?.(json, layers) ?? {};
  const scaling = json['rope_scaling'] as Json | undefined;
  const all: Record<string, GgufValue> = {
    context_length: u(json['max_position_embeddings']),
    embedding_length: u(json['hidden_size']),
    block_count: u(layers + ('nextn_predict_layers' in further ? 1 : 0)),
    feed_forward_length: u(json['intermediate_size']),
    'attention.head_count': u(json['num_attention_heads']),
    ...(architecture === 'mamba2' ? {} : attentionPairs(json)),
    'attention.layer_norm_rms_epsilon': f(json['rms_norm_eps']),
    ...(scaling?.['rope_type'] === 'yarn'
      ? {
          'rope.scaling.type': { text: 'yarn' },
          'rope.scaling.factor': f(scaling['factor']),
          'rope.scaling.original_context_length': u(scaling['original_max_position_embeddings']),
        }
      : {}),
    ...further,
  };
  const listOf = (key: string): readonly number[] =>
    tensors.flatMap(({ name, values }) => (name.endsWith(`act_fn.${key}`) ? [...values] : []));
  const lists = ['alpha_p', 'alpha_n', 'beta', 'eps'].map((key) => [`xielu.${key}`, { f32s: listOf(key) }] as const);
  return {
    'general.architecture': { text: architecture },
    ...Object.fromEntries(Object.entries(all).map(([key, value]) => [`${architecture}.${key}`, value])),
    ...(architecture === 'apertus' ? Object.fromEntries(lists) : {}),
  };
}
