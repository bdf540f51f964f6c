/**
 * Adapters with random numbers of many kinds on many families, for the checkpoints of the data folder beside the
 * repository.
 */
import type { RandomAdapter } from './randomAdapters.js';

const QV = /self_attn\.[qv]_proj$/;
const LAYERS = /layers\.\d+\..*(?:[qkvo]|gate|up|down)_proj$/;
const qv = { targets: QV, config: { target_modules: ['q_proj', 'v_proj'] } };
const all = { targets: LAYERS, config: { target_modules: 'all-linear' } };
const experts = (count: number, inner: number): NonNullable<RandomAdapter['experts']> => ({
  path: 'model.layers.*.mlp.experts',
  ...{ count, widths: [64, inner] },
});

const gpt2 = { isTurned: true, targets: /h\.\d+\..*(?:c_attn|c_proj|c_fc)$/ } as const;
const LATENT = ['q_a_proj', 'q_b_proj', 'kv_a_proj_with_mqa', 'kv_b_proj', 'o_proj'];
const latent = { targets: /(?:q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj)$/ };
const HEAD = { 'lm_head.lora_A.weight': [8, 64], 'lm_head.lora_B.weight': [1536, 8] };

export const ADAPTER_CASES: readonly (readonly [base: string, what: string, asked: Omit<RandomAdapter, 'seed'>])[] = [
  ['qwen3', 'all matrices, with magnitudes', { ...all, hasMagnitudes: true }],
  [
    'gemma3',
    'embedding and matrices',
    { targets: /embed_tokens$|[qv]_proj$/, config: { target_modules: ['embed_tokens', 'q_proj', 'v_proj'] } },
  ],
  ['gemma', 'rows of tokens', { ...qv, tokens: [3, 17, 402] }],
  ['olmo2', 'all matrices', all],
  ['olmo2', 'whole norms', { ...qv, saved: ['post_feedforward_layernorm', 'norm', 'lm_head'] }],
  ['cohere2', 'all matrices', all],
  ['stablelm', 'biases of products', { ...qv, hasProductBiases: true }],
  ['stablelm', 'all biases', { ...qv, biases: 'all' }],
  [
    'stablelm',
    'matrices of half the layers, with biases',
    {
      ...{ targets: /layers\.[13]\..*[qv]_proj$/, biases: 'lora_only' },
      config: { target_modules: ['q_proj', 'v_proj'], layers_to_transform: [1, 3], layers_pattern: 'layers' },
    },
  ],
  [
    'granite',
    'all but some',
    {
      targets: /layers\.\d+\..*(?:[kvo]|gate|up)_proj$/,
      config: { target_modules: 'all-linear', exclude_modules: ['q_proj', 'down_proj'] },
    },
  ],
  [
    'granite',
    'a head',
    { targets: /[qv]_proj$|lm_head$/, config: { target_modules: ['q_proj', 'v_proj', 'lm_head'] } },
  ],
  ['smollm3', 'rank 100', { ...all, rank: 100, config: { ...all.config, use_rslora: true } }],
  [
    'qwen2-moe',
    'shared experts and attention',
    {
      targets: /(?:self_attn\.[qkvo]|shared_expert\.(?:gate|up|down))_proj$/,
      config: { target_modules: '.*(self_attn\\.[qkvo]_proj|shared_expert\\.(gate|up|down)_proj)' },
    },
  ],
  [
    'qwen2-moe',
    'all matrices',
    { targets: /layers\.\d+\..*(?:_proj|gate)$/, config: { target_modules: 'all-linear' } },
  ],
  ['qwen3-moe', 'experts of one parameter', { ...qv, rank: 4, experts: experts(8, 48) }],
  ['mixtral', 'experts of one parameter', { ...qv, rank: 4, experts: experts(4, 96) }],
  [
    'mixtral',
    'routers and experts',
    {
      targets: /block_sparse_moe\.(?:gate|experts\.\d+\.w[123])$/,
      config: { target_modules: ['gate', 'w1', 'w2', 'w3'] },
    },
  ],
  ['gpt2', 'all matrices', { ...gpt2, config: { target_modules: 'all-linear' } }],
  [
    'gpt2',
    'matrices and positions, with biases of products',
    {
      ...{ ...gpt2, targets: /(?:c_attn|c_fc)$/, hasProductBiases: true },
      config: { target_modules: ['c_attn', 'c_fc'], fan_in_fan_out: true },
    },
  ],
  [
    'gpt2',
    'positions and embedding, with magnitudes',
    {
      ...gpt2,
      targets: /(?:c_attn|wpe|wte)$/,
      hasMagnitudes: true,
      config: { target_modules: ['c_attn', 'wpe', 'wte'] },
    },
  ],
  [
    'gpt2',
    'whole matrices and head',
    {
      ...{ ...gpt2, targets: /c_attn$/, saved: ['c_fc'], added: { 'lm_head.weight': [1536, 64] } },
      config: { target_modules: ['c_attn'], modules_to_save: ['c_fc', 'lm_head'] },
    },
  ],
  [
    'opt',
    'embedding and matrices',
    { targets: /(?:[qv]_proj|fc1)$/, config: { target_modules: ['q_proj', 'v_proj', 'fc1'] } },
  ],
  ['deepseek-v2', 'all matrices of attention', { ...latent, config: { target_modules: LATENT } }],
  ['deepseek-v3', 'the same with magnitudes', { ...latent, hasMagnitudes: true, config: { target_modules: LATENT } }],
  [
    'deepseek-v3',
    'whole matrices of heads',
    { targets: /q_a_proj$/, saved: ['kv_b_proj'], config: { target_modules: ['q_a_proj'] } },
  ],
  ['gpt-oss', 'attention', { targets: LAYERS, config: { target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj'] } }],
  ['gpt-oss', 'experts of one parameter', { ...qv, rank: 4, experts: experts(4, 160) }],
  ['gpt-oss-mxfp4', 'experts of one parameter', { ...qv, rank: 4, experts: experts(4, 160) }],
  [
    'llama4',
    'experts of one parameter',
    { ...qv, rank: 4, experts: { ...experts(4, 96), path: 'model.layers.*.feed_forward.experts', isTurned: true } },
  ],
  ['mamba2', 'projections', { targets: /in_proj$/, config: { target_modules: ['in_proj'] } }],
  [
    'gpt-neox',
    'a head by the name that all have',
    { targets: /query_key_value$/, added: HEAD, config: { target_modules: ['query_key_value', 'lm_head'] } },
  ],
  [
    'exaone4',
    'all but a kind of matrices that is named',
    {
      targets: /layers\.\d+\..*(?:[qkvo]|gate|up)_proj$/,
      config: {
        target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'],
        exclude_modules: ['down_proj'],
      },
    },
  ],
];

export const caseName = (base: string, what: string): string => `${base}: ${what}`;

/** Of the random numbers of a case: its place among all. */
export const adapterSeed = (base: string, what: string): number =>
  1 + ADAPTER_CASES.findIndex((each) => each[0] === base && each[1] === what);
