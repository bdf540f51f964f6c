/** The checkpoints of families in the data folder beside the repository: each is a folder of checkpoints/families. */

/** A router, several feed-forward blocks. */
export const EXPERT_CHECKPOINTS = ['mixtral', 'qwen2-moe', 'qwen3-moe'] as const;

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
  'gemma',
  'gemma2',
  'gemma3',
  'cohere2',
  'llama-bias',
  'llama-yarn',
] as const;

export const FAMILY_CHECKPOINTS = [...EXPERT_CHECKPOINTS, ...DENSE_CHECKPOINTS] as const;

export type FamilyCheckpoint = (typeof FAMILY_CHECKPOINTS)[number];
