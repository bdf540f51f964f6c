/** Names of modules in GGUF files, and those of the same modules in Hugging Face checkpoints. */

/** A module of the model or of a layer by its name in GGUF. */
export type Modules = Readonly<Record<string, string>>;

/** What stands for a number in the name of a module: the tensor holds one for each, along its first dimension. */
export const EACH = '{each}';

/** The rows of one of several modules in one, and its name in Hugging Face checkpoints. */
export interface JoinedRows {
  readonly module: string;
  readonly rows: number;
}

/** Names of the modules of a family. */
export interface GgufModuleNames {
  /** Outside of layers. */
  readonly model: Modules;
  /** What stands before the number of a layer. */
  readonly layers: string;
  readonly layer: Modules;
  /** Modules of a layer whose rows are those of several, one behind another. */
  readonly joined?: Readonly<Record<string, readonly JoinedRows[]>>;
  /** Tensors of a layer that are no `weight` or `bias` of such a module, by all that follows its number. */
  readonly whole?: Modules;
}

const FEED_FORWARD: Modules = {
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

export const LLAMA_MODULES: GgufModuleNames = {
  model: { token_embd: 'model.embed_tokens', output: 'lm_head', output_norm: 'model.norm' },
  layers: 'model.layers',
  layer: {
    attn_norm: 'input_layernorm',
    attn_q: 'self_attn.q_proj',
    attn_k: 'self_attn.k_proj',
    attn_v: 'self_attn.v_proj',
    attn_output: 'self_attn.o_proj',
    ffn_norm: 'post_attention_layernorm',
    ...FEED_FORWARD,
  },
};

/** The names of LLaMA with some of its layers' own. */
export const withModules = (layer: Modules): GgufModuleNames => ({
  ...LLAMA_MODULES,
  layer: { ...LLAMA_MODULES.layer, ...layer },
});

export const HEAD_NORMS: Modules = { attn_q_norm: 'self_attn.q_norm', attn_k_norm: 'self_attn.k_norm' };

export const MIXTRAL_MODULES = withModules({
  ffn_gate_inp: 'block_sparse_moe.gate',
  ffn_gate_exps: `block_sparse_moe.experts.${EACH}.w1`,
  ffn_up_exps: `block_sparse_moe.experts.${EACH}.w3`,
  ffn_down_exps: `block_sparse_moe.experts.${EACH}.w2`,
});

export const QWEN_EXPERTS: Modules = {
  ffn_gate_inp: 'mlp.gate',
  ffn_gate_exps: `mlp.experts.${EACH}.gate_proj`,
  ffn_up_exps: `mlp.experts.${EACH}.up_proj`,
  ffn_down_exps: `mlp.experts.${EACH}.down_proj`,
  ffn_gate_shexp: 'mlp.shared_expert.gate_proj',
  ffn_up_shexp: 'mlp.shared_expert.up_proj',
  ffn_down_shexp: 'mlp.shared_expert.down_proj',
  ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
};

/** Norms before and behind both branches. */
export const FOUR_NORMS: Modules = {
  post_attention_norm: 'post_attention_layernorm',
  ffn_norm: 'pre_feedforward_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
};

export const OLMO_MODULES: GgufModuleNames = {
  ...LLAMA_MODULES,
  layer: {
    attn_q: 'self_attn.q_proj',
    attn_k: 'self_attn.k_proj',
    attn_v: 'self_attn.v_proj',
    attn_output: 'self_attn.o_proj',
    ...HEAD_NORMS,
    ...FEED_FORWARD,
    post_attention_norm: 'post_attention_layernorm',
    post_ffw_norm: 'post_feedforward_layernorm',
  },
};

export const PHI_MODULES: GgufModuleNames = {
  ...LLAMA_MODULES,
  layer: {
    attn_norm: 'input_layernorm',
    attn_qkv: 'self_attn.qkv_proj',
    attn_output: 'self_attn.o_proj',
    ffn_norm: 'post_attention_layernorm',
    ffn_up: 'mlp.gate_up_proj',
    ffn_down: 'mlp.down_proj',
  },
};

export const NEOX_MODULES: GgufModuleNames = {
  model: { token_embd: 'gpt_neox.embed_in', output: 'embed_out', output_norm: 'gpt_neox.final_layer_norm' },
  layers: 'gpt_neox.layers',
  layer: {
    attn_norm: 'input_layernorm',
    attn_qkv: 'attention.query_key_value',
    attn_output: 'attention.dense',
    ffn_norm: 'post_attention_layernorm',
    ffn_up: 'mlp.dense_h_to_4h',
    ffn_down: 'mlp.dense_4h_to_h',
  },
};
