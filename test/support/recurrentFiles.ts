/** Configurations of tiny models with recurrent layers, one of each kind. */
const SMALL = {
  ...{ hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2 },
  ...{ num_key_value_heads: 1, head_dim: 8, vocab_size: 40, max_position_embeddings: 256 },
};
export const RECURRENT_FILES = {
  'qwen3.5': {
    architectures: ['Qwen3_5ForCausalLM'],
    ...SMALL,
    layer_types: ['linear_attention', 'full_attention'],
    ...{ linear_num_key_heads: 1, linear_num_value_heads: 2, linear_key_head_dim: 4, linear_value_head_dim: 6 },
    linear_conv_kernel_dim: 4,
  },
  lfm2: { architectures: ['Lfm2ForCausalLM'], ...SMALL, full_attn_idxs: [1], conv_L_cache: 3 },
  mamba2: {
    architectures: ['Mamba2ForCausalLM'],
    ...SMALL,
    ...{ num_heads: 4, head_dim: 8, expand: 2, n_groups: 2, state_size: 4 },
  },
};
