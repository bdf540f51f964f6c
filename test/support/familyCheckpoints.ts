/** The checkpoints of families in the data folder beside the repository: each is a folder of checkpoints/families. */

/** A router, several feed-forward blocks. */
export const EXPERT_CHECKPOINTS = [
  'mixtral',
  'qwen2-moe',
  'qwen3-moe',
  'olmoe',
  'granite-moe',
  'glm4-moe',
  'minimax-m2',
  'gpt-oss',
  'gpt-oss-mxfp4',
  'deepseek-v2',
  'deepseek-v3',
] as const;

/** All others: biases, norms of heads, factors, layers without rotary embedding, windows, stretched positions, caps. */
export const DENSE_CHECKPOINTS = [
  'mistral',
  'qwen2',
  'qwen2-window',
  'qwen3',
  'olmo2',
  'olmo3',
  'phi3',
  'granite',
  'smollm3',
  'stablelm',
  'gpt-neox',
  'phi',
  'gemma',
  'gemma2',
  'gemma3',
  'cohere2',
  'llama-bias',
  'llama-yarn',
  'seed-oss',
  'arcee',
  'ernie4.5',
  'hunyuan-dense',
  'glm',
  'glm4',
  'exaone4',
  'starcoder2',
  'cohere',
  'nemotron',
  'falcon',
  'gpt2',
  'opt',
  'apertus',
  'bloom',
  'mpt',
  'llama4',
] as const;

/** Their steps go on from rows of states (recurrentSteps.test.ts). */
export const RECURRENT_CHECKPOINTS = ['qwen3.5', 'qwen3-next', 'lfm2', 'mamba2'] as const;

export const FAMILY_CHECKPOINTS = [...EXPERT_CHECKPOINTS, ...DENSE_CHECKPOINTS] as const;

/** Each has what the others lack. CI tries these where test:slow tries all. */
const TYPICAL_CHECKPOINTS: readonly FamilyCheckpoint[] = [
  'mixtral',
  'qwen2-moe',
  'qwen2-window',
  'qwen3',
  'olmo3',
  'phi3',
  'stablelm',
  'gpt-neox',
  'gemma3',
  'cohere2',
  'llama-yarn',
  'hunyuan-dense',
  'glm4',
  'granite-moe',
  'falcon',
  'gpt2',
];

/** Where those lie in the list of all. */
export const TYPICAL_PLACES = TYPICAL_CHECKPOINTS.map((name) => FAMILY_CHECKPOINTS.indexOf(name));

type FamilyCheckpoint = (typeof FAMILY_CHECKPOINTS)[number];
