/**
 * Configurations as they are published: those of families that are read, and what each other one is called. Sizes are
 * those of the models where they are read, and made up where they are not.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../../models/config.js';
import { ARCHITECTURES } from '../../models/families/registry.js';
import { SHARED, skipReason, userError } from './support.js';

type Json = Readonly<Record<string, unknown>>;

const sizes = (
  [hidden_size, intermediate_size, num_hidden_layers]: readonly [number, number, number],
  [num_attention_heads, num_key_value_heads]: readonly [number, number],
  vocab_size: number,
): Json => ({
  hidden_size,
  intermediate_size,
  num_hidden_layers,
  num_attention_heads,
  num_key_value_heads,
  vocab_size,
});

const LLAMA_8B = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  ...sizes([4096, 14_336, 32], [32, 8], 128_256),
  max_position_embeddings: 131_072,
  rms_norm_eps: 1e-5,
  rope_theta: 500_000,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
  attention_bias: false,
  hidden_act: 'silu',
  bos_token_id: 128_000,
  eos_token_id: [128_001, 128_008, 128_009],
};
const LLAMA3_ROPE = {
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
  rope_type: 'llama3',
};
const MISTRAL_7B = {
  architectures: ['MistralForCausalLM'],
  model_type: 'mistral',
  ...sizes([4096, 14_336, 32], [32, 8], 32_000),
  max_position_embeddings: 32_768,
  rms_norm_eps: 1e-5,
  sliding_window: 4096,
  tie_word_embeddings: false,
  use_cache: true,
};
const QWEN2_7B = {
  architectures: ['Qwen2ForCausalLM'],
  model_type: 'qwen2',
  ...sizes([3584, 18_944, 28], [28, 4], 152_064),
  max_position_embeddings: 32_768,
  max_window_layers: 28,
  sliding_window: 131_072,
  use_sliding_window: false,
  use_mrope: false,
  tie_word_embeddings: false,
  rms_norm_eps: 1e-6,
};
const QWEN3_8B = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  ...sizes([4096, 12_288, 36], [32, 8], 151_936),
  head_dim: 128,
  max_position_embeddings: 40_960,
  max_window_layers: 36,
  sliding_window: null,
  use_sliding_window: false,
  attention_bias: false,
  tie_word_embeddings: false,
  rope_scaling: null,
};
const GEMMA3_1B = {
  architectures: ['Gemma3ForCausalLM'],
  model_type: 'gemma3_text',
  ...sizes([1152, 6912, 26], [4, 1], 262_144),
  head_dim: 256,
  hidden_activation: 'gelu_pytorch_tanh',
  attn_logit_softcapping: null,
  final_logit_softcapping: null,
  query_pre_attn_scalar: 256,
  max_position_embeddings: 32_768,
  rope_local_base_freq: 10_000,
  rope_theta: 1_000_000,
  sliding_window: 512,
  sliding_window_pattern: 6,
  use_bidirectional_attention: false,
};
const GEMMA2_9B = {
  architectures: ['Gemma2ForCausalLM'],
  model_type: 'gemma2',
  ...sizes([3584, 14_336, 42], [16, 8], 256_000),
  head_dim: 256,
  attn_logit_softcapping: 50,
  final_logit_softcapping: 30,
  query_pre_attn_scalar: 256,
  sliding_window: 4096,
};
const LLAMA_DEFAULTS = { is_encoder_decoder: false, is_decoder: false, add_cross_attention: false };

const VISION = { depth: 32, hidden_size: 1280 };
const GPT_OSS_20B = {
  architectures: ['GptOssForCausalLM'],
  model_type: 'gpt_oss',
  ...sizes([2880, 2880, 24], [64, 8], 201_088),
  head_dim: 64,
  attention_bias: true,
  experts_per_token: 4,
  initial_context_length: 4096,
  num_experts_per_tok: 4,
  num_local_experts: 32,
  layer_types: Array.from({ length: 24 }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention')),
  sliding_window: 128,
  rope_theta: 150_000,
  rope_scaling: {
    rope_type: 'yarn',
    factor: 32,
    beta_fast: 32,
    beta_slow: 1,
    truncate: false,
    original_max_position_embeddings: 4096,
  },
  swiglu_limit: 7,
  output_router_logits: false,
  router_aux_loss_coef: 0.9,
};

/** Each with the family that reads it. */
const READ: readonly (readonly [model: string, config: Json, family: string])[] = [
  [
    'Qwen 2.5 VL 7B',
    {
      ...QWEN2_7B,
      architectures: ['Qwen2_5_VLForConditionalGeneration'],
      model_type: 'qwen2_5_vl',
      rope_theta: 1_000_000,
      rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] },
      vision_config: VISION,
    },
    'Qwen2ForCausalLM',
  ],
  [
    'Qwen 3 VL 8B',
    {
      architectures: ['Qwen3VLForConditionalGeneration'],
      model_type: 'qwen3_vl',
      text_config: {
        ...QWEN3_8B,
        architectures: undefined,
        model_type: 'qwen3_vl_text',
        rope_scaling: { rope_type: 'default', mrope_interleaved: true, mrope_section: [24, 20, 20] },
      },
      vision_config: VISION,
    },
    'Qwen3ForCausalLM',
  ],
  [
    'Ministral 3 8B',
    {
      architectures: ['Mistral3ForConditionalGeneration'],
      model_type: 'mistral3',
      text_config: {
        model_type: 'ministral3',
        ...sizes([4096, 14_336, 34], [32, 8], 131_072),
        head_dim: 128,
        max_position_embeddings: 262_144,
        rope_parameters: {
          type: 'yarn',
          rope_type: 'yarn',
          rope_theta: 1_000_000,
          factor: 16,
          original_max_position_embeddings: 16_384,
          llama_4_scaling_beta: 0.1,
          mscale: 1,
          mscale_all_dim: 1,
        },
      },
    },
    'Ministral3ForCausalLM',
  ],
  ['Llama 3.1 8B', { ...LLAMA_8B, rope_scaling: LLAMA3_ROPE, mlp_bias: false, pretraining_tp: 1 }, 'LlamaForCausalLM'],
  [
    'Llama 3.2 1B',
    {
      ...LLAMA_8B,
      ...sizes([2048, 8192, 16], [32, 8], 128_256),
      head_dim: 64,
      tie_word_embeddings: true,
      rope_scaling: { ...LLAMA3_ROPE, factor: 32 },
    },
    'LlamaForCausalLM',
  ],
  [
    'all defaults written out, as old files have them',
    { ...LLAMA_8B, ...LLAMA_DEFAULTS, id2label: { 0: 'LABEL_0' }, problem_type: null, is_causal: true },
    'LlamaForCausalLM',
  ],
  ['a head of tokens that scores steps (RLHFlow)', { ...LLAMA_8B, num_labels: 1 }, 'LlamaForCausalLM'],
  ['gpt-oss 20B', GPT_OSS_20B, 'GptOssForCausalLM'],
  [
    'LLaMA 2 7B 32K, whose code need not be run',
    {
      ...LLAMA_8B,
      auto_map: { AutoModelForCausalLM: 'togethercomputer/x--modeling_flash_llama.LlamaForCausalLM' },
      rope_scaling: { type: 'linear', factor: 8 },
    },
    'LlamaForCausalLM',
  ],
  ['Yi', { ...LLAMA_8B, architectures: ['YiForCausalLM'] }, 'LlamaForCausalLM'],
  ['the oldest conversions', { ...LLAMA_8B, architectures: ['LLaMAForCausalLM'] }, 'LlamaForCausalLM'],
  ['no class', { ...LLAMA_8B, architectures: null }, 'LlamaForCausalLM'],
  [
    'a base model whose embeddings are its head',
    { ...LLAMA_8B, architectures: ['LlamaModel'], tie_word_embeddings: true },
    'LlamaForCausalLM',
  ],
  ['Mistral 7B', MISTRAL_7B, 'MistralForCausalLM'],
  ['Mistral NeMo', { ...MISTRAL_7B, head_dim: 128, hidden_size: 5120, sliding_window: null }, 'MistralForCausalLM'],
  [
    'Mixtral 8x7B',
    {
      ...MISTRAL_7B,
      architectures: ['MixtralForCausalLM'],
      model_type: 'mixtral',
      sliding_window: null,
      num_experts_per_tok: 2,
      num_local_experts: 8,
    },
    'MixtralForCausalLM',
  ],
  ['Qwen 2.5 7B', QWEN2_7B, 'Qwen2ForCausalLM'],
  ['Qwen 3 8B', QWEN3_8B, 'Qwen3ForCausalLM'],
  ['Qwen 3 Embedding, a whole model', { ...QWEN3_8B, tie_word_embeddings: true }, 'Qwen3ForCausalLM'],
  [
    'Qwen 3 30B-A3B',
    {
      ...QWEN3_8B,
      architectures: ['Qwen3MoeForCausalLM'],
      model_type: 'qwen3_moe',
      decoder_sparse_step: 1,
      mlp_only_layers: [],
      moe_intermediate_size: 768,
      norm_topk_prob: true,
      num_experts: 128,
      num_experts_per_tok: 8,
    },
    'Qwen3MoeForCausalLM',
  ],
  [
    'Gemma 2B',
    {
      architectures: ['GemmaForCausalLM'],
      model_type: 'gemma',
      ...sizes([2048, 16_384, 18], [8, 1], 256_000),
      head_dim: 256,
      hidden_act: 'gelu',
    },
    'GemmaForCausalLM',
  ],
  ['Gemma 2 9B', GEMMA2_9B, 'Gemma2ForCausalLM'],
  ['Gemma 3 1B', GEMMA3_1B, 'Gemma3ForCausalLM'],
  [
    'Gemma 3 4B',
    {
      architectures: ['Gemma3ForConditionalGeneration'],
      model_type: 'gemma3',
      eos_token_id: [1, 106],
      text_config: { model_type: 'gemma3_text', hidden_size: 2560, intermediate_size: 10_240, num_hidden_layers: 34 },
      vision_config: { model_type: 'siglip_vision_model' },
    },
    'Gemma3ForCausalLM',
  ],
  [
    'Phi 3 mini, whose code need not be run',
    {
      architectures: ['Phi3ForCausalLM'],
      model_type: 'phi3',
      auto_map: { AutoConfig: 'configuration_phi3.Phi3Config', AutoModelForCausalLM: 'modeling_phi3.Phi3ForCausalLM' },
      ...sizes([3072, 8192, 32], [32, 32], 32_064),
      max_position_embeddings: 4096,
      original_max_position_embeddings: 4096,
      sliding_window: 2047,
    },
    'Phi3ForCausalLM',
  ],
  [
    'Pythia',
    {
      architectures: ['GPTNeoXForCausalLM'],
      model_type: 'gpt_neox',
      hidden_size: 512,
      intermediate_size: 2048,
      num_hidden_layers: 6,
      num_attention_heads: 8,
      vocab_size: 50_304,
      hidden_act: 'gelu',
      rotary_pct: 0.25,
      is_decoder: false,
    },
    'GPTNeoXForCausalLM',
  ],
  [
    'LLaVA 1.5',
    {
      architectures: ['LlavaForConditionalGeneration'],
      model_type: 'llava',
      text_config: { model_type: 'llama', architectures: ['LlamaForCausalLM'], vocab_size: 32_064 },
      vision_config: { model_type: 'clip_vision_model' },
    },
    'LlamaForCausalLM',
  ],
  [
    'Mistral Small 3.1',
    {
      architectures: ['Mistral3ForConditionalGeneration'],
      model_type: 'mistral3',
      text_config: { ...MISTRAL_7B, architectures: undefined, head_dim: 128, hidden_size: 5120, sliding_window: null },
    },
    'MistralForCausalLM',
  ],
  [
    'Qwen 2 Audio',
    {
      architectures: ['Qwen2AudioForConditionalGeneration'],
      model_type: 'qwen2_audio',
      text_config: { ...QWEN2_7B, architectures: undefined },
    },
    'Qwen2ForCausalLM',
  ],
  [
    'SmolVLM',
    {
      architectures: ['SmolVLMForConditionalGeneration'],
      model_type: 'smolvlm',
      text_config: { ...LLAMA_8B, architectures: ['VLlama3ForCausalLM'] },
    },
    'LlamaForCausalLM',
  ],
];

const DRAFT = 'it is a draft model, which guesses tokens that another model checks';
const CLASSIFIER = 'it is a classifier or a reward model';
const BOTH_WAYS = 'in this model also those behind them';
const EMBEDDER = 'it is a model whose tokens see those behind them, for embeddings';
const ENCODER = 'it is an encoder, which does not continue texts';
const SEQ2SEQ = 'it is an encoder with a decoder';
const SPEECH = 'it is a model of speech or sound';
const PICTURES = 'it is a model of pictures';
const RECURRENT = 'it is a model whose layers keep a recurrent state';
const DIFFUSION = 'it is a diffusion model of texts';
const UNKNOWN = 'is not supported';

const ofClass = (name: string, base: Json = LLAMA_8B): Json => ({ ...base, architectures: [name] });
const ofType = (model_type: string, name: string): Json => ({ ...ofClass(name), model_type });

/** Each with what its refusal says. */
const REFUSED: readonly (readonly [model: string, config: Json, says: string])[] = [
  // Draft models, most of which have the model_type of the family that they resemble.
  ['EAGLE 3', { ...ofClass('LlamaForCausalLMEagle3'), num_hidden_layers: 1, draft_vocab_size: 32_000 }, DRAFT],
  ['EAGLE 3 by its class alone', ofClass('LlamaForCausalLMEagle3'), DRAFT],
  ['EAGLE by its class', ofClass('LlamaForCausalLMEagle'), DRAFT],
  ['P-EAGLE', ofClass('PeagleLlamaForCausalLM'), DRAFT],
  ['EAGLE of vLLM', { architectures: ['EagleLlamaForCausalLM'], model_type: 'eagle', model: LLAMA_8B }, DRAFT],
  ['EAGLE whose class is a whole model', { ...LLAMA_8B, eagle_config: { use_aux_hidden_state: true } }, DRAFT],
  ['EAGLE by its sizes alone', { ...LLAMA_8B, draft_vocab_size: 32_000 }, DRAFT],
  ['EAGLE 3 of Qwen', ofClass('Eagle3Qwen2_5vlForCausalLM', QWEN3_8B), DRAFT],
  ['Medusa', { base_model_name_or_path: 'lmsys/vicuna-7b-v1.3', medusa_num_heads: 2, medusa_num_layers: 1 }, DRAFT],
  ['Medusa of vLLM', { architectures: ['MedusaModel'], model_type: 'medusa' }, DRAFT],
  ['Hydra', { ...LLAMA_8B, hydra_num_heads: 4 }, DRAFT],
  [
    'DFlash',
    {
      ...ofClass('DFlashDraftModel', QWEN3_8B),
      auto_map: { AutoModel: 'dflash.DFlashDraftModel' },
      block_size: 16,
      dflash_config: { mask_token_id: 151_669, target_layer_ids: [1, 9, 17, 25, 33] },
      num_target_layers: 36,
    },
    DRAFT,
  ],
  ['DFlash by its class alone', ofClass('DFlash2DraftModel', QWEN3_8B), DRAFT],
  ['DSpark', ofClass('DSparkDraftModel', QWEN3_8B), DRAFT],
  [
    'speculators',
    {
      architectures: ['Eagle3Speculator'],
      speculators_model_type: 'eagle3',
      speculators_config: { verifier: { name_or_path: 'meta-llama/Llama-3.1-8B-Instruct' } },
      transformer_layer_config: LLAMA_8B,
    },
    `${DRAFT} ("meta-llama/Llama-3.1-8B-Instruct"), of the kind eagle3`,
  ],
  ['MTP', ofType('deepseek_mtp', 'DeepSeekMTPModel'), DRAFT],
  ['MTP of Qwen', ofClass('Qwen3NextMTP', QWEN3_8B), DRAFT],
  ['MLP speculator', ofType('mlp_speculator', 'MLPSpeculatorPreTrainedModel'), DRAFT],
  // Other heads.
  ['ArmoRM', ofClass('LlamaForRewardModelWithGating'), CLASSIFIER],
  ['Beaver', ofClass('LlamaForScore'), CLASSIFIER],
  ['a value head', ofClass('LlamaForCausalLMWithValueHead'), CLASSIFIER],
  ['Qwen 3 Guard, which marks tokens', ofClass('Qwen3ForGuardModel', QWEN3_8B), CLASSIFIER],
  ['a reranker', ofClass('JinaForRanking', QWEN3_8B), CLASSIFIER],
  [
    'Gemma 3 with labels',
    { ...ofType('gemma3', 'Gemma3ForSequenceClassification'), text_config: GEMMA3_1B },
    CLASSIFIER,
  ],
  [
    'LLaVA with labels',
    { ...ofType('llava_x', 'LlavaNextForSequenceClassification'), text_config: LLAMA_8B },
    CLASSIFIER,
  ],
  ['answers as spans', ofClass('LlamaForQuestionAnswering'), CLASSIFIER],
  // Tokens that see both ways.
  ['gte Qwen 2', { ...QWEN2_7B, is_causal: false }, BOTH_WAYS],
  ['EmbeddingGemma', { ...ofClass('Gemma3TextModel', GEMMA3_1B), use_bidirectional_attention: true }, BOTH_WAYS],
  ['a whole Gemma that says "all"', { ...GEMMA3_1B, use_bidirectional_attention: 'all' }, BOTH_WAYS],
  ['Llama that says it', { ...LLAMA_8B, use_bidirectional_attention: true }, BOTH_WAYS],
  ['a wrapper that says it', { model_type: 'llava', text_config: { ...LLAMA_8B, is_causal: false } }, BOTH_WAYS],
  ['a wrapper outside', { model_type: 'llava', is_causal: false, text_config: LLAMA_8B }, BOTH_WAYS],
  ['LLM2Vec', ofClass('LlamaBiModel'), EMBEDDER],
  ['LLM2CLIP', ofClass('LlamaEncoderModel'), EMBEDDER],
  ['MNTP', ofClass('MistralBiForMNTP', MISTRAL_7B), EMBEDDER],
  ['Nemotron embed', ofType('llama_bidirec', 'LlamaBidirectionalModel'), EMBEDDER],
  ['Voyage', ofClass('VoyageQwen3BidirectionalEmbedModel', QWEN3_8B), EMBEDDER],
  [
    'NV-Embed',
    { ...ofType('nvembed', 'NVEmbedModel'), text_config: ofType('bidir_mistral', 'BidirectionalMistralModel') },
    'it is an embedding model',
  ],
  ['GritLM by its class', ofClass('GritLM', MISTRAL_7B), 'it is an embedding model'],
  ['E5 Mistral', ofClass('MistralModel', MISTRAL_7B), 'a model without a head, as models for embeddings are'],
  ['a Qwen 3 without a head', ofClass('Qwen3Model', QWEN3_8B), 'a model without a head'],
  ['a prefix language model', { ...LLAMA_8B, is_prefix_lm: true }, 'those of a prompt see all of it'],
  [
    'PaliGemma',
    { architectures: ['PaliGemmaForConditionalGeneration'], model_type: 'paligemma', text_config: GEMMA2_9B },
    'in which tokens of a prompt see those behind them',
  ],
  ['an encoder with a decoder', { ...LLAMA_8B, is_encoder_decoder: true }, SEQ2SEQ],
  ['cross-attention', { ...LLAMA_8B, add_cross_attention: true }, 'also see what another model has read'],
  // Something else altogether.
  ['BERT', ofType('bert', 'BertForMaskedLM'), ENCODER],
  ['BGE', ofType('xlm-roberta', 'XLMRobertaModel'), ENCODER],
  ['BGE reranker', ofType('xlm-roberta', 'XLMRobertaForSequenceClassification'), ENCODER],
  ['MiniLM', ofType('bert', 'BertModel'), ENCODER],
  ['GTE', ofType('new', 'NewModel'), ENCODER],
  ['Nomic', ofType('nomic_bert', 'NomicBertModel'), ENCODER],
  ['ModernBERT', ofType('modernbert', 'ModernBertForMaskedLM'), ENCODER],
  ['DeBERTa', ofType('deberta-v2', 'DebertaV2ForSequenceClassification'), ENCODER],
  [
    'T5',
    { architectures: ['T5ForConditionalGeneration'], model_type: 't5', is_encoder_decoder: true },
    `architecture "T5ForConditionalGeneration" is not supported: ${SEQ2SEQ}`,
  ],
  ['T5 Gemma', ofType('t5gemma', 'T5GemmaForConditionalGeneration'), SEQ2SEQ],
  ['BART', ofType('bart', 'BartForConditionalGeneration'), SEQ2SEQ],
  ['NLLB', ofType('m2m_100', 'M2M100ForConditionalGeneration'), SEQ2SEQ],
  [
    'Whisper',
    { ...ofType('whisper', 'WhisperForConditionalGeneration'), is_encoder_decoder: true },
    `architecture "WhisperForConditionalGeneration" is not supported: ${SPEECH}`,
  ],
  ['wav2vec', ofType('wav2vec2', 'Wav2Vec2ForCTC'), SPEECH],
  ['ViT', ofType('vit', 'ViTForImageClassification'), PICTURES],
  [
    'CLIP',
    { architectures: ['CLIPModel'], model_type: 'clip', text_config: { model_type: 'clip_text_model' } },
    PICTURES,
  ],
  ['Qwen 2 VL', ofType('qwen2_vl', 'Qwen2VLForConditionalGeneration'), 'it is a model of pictures or sounds beside'],
  ['LLaVA of its own', ofType('llava_llama', 'LlavaLlamaForCausalLM'), 'it is a model of pictures or sounds beside'],
  ['LLaVA with a known type', ofClass('LlavaQwenForCausalLM', QWEN2_7B), 'it is a model of pictures or sounds beside'],
  ['Mamba', ofType('mamba', 'MambaForCausalLM'), RECURRENT],
  ['RWKV', ofType('rwkv', 'RwkvForCausalLM'), RECURRENT],
  ['Jamba', ofType('jamba', 'JambaForCausalLM'), RECURRENT],
  ['Qwen 3 Next', ofType('qwen3_next', 'Qwen3NextForCausalLM'), RECURRENT],
  ['LLaDA', ofType('llada', 'LLaDAModelLM'), DIFFUSION],
  ['Dream', ofType('Dream', 'DreamModel'), DIFFUSION],
  ['a part of Stable Diffusion', { _class_name: 'UNet2DConditionModel' }, 'a part of a diffusion pipeline, "UNet2D'],
  ['BitNet with a known type', ofClass('BitnetForCausalLM'), 'it is BitNet'],
  // Code that comes with a checkpoint, and classes whose names say nothing.
  [
    'code of its own',
    { ...ofClass('QuietForCausalLM'), auto_map: { AutoModelForCausalLM: 'modeling_quiet.QuietForCausalLM' } },
    'is code that comes with the checkpoint (auto_map)',
  ],
  ['a class that may be anything', ofClass('LlamaSomething'), 'architecture "LlamaSomething" is not supported'],
  // Language models of other families.
  [
    'openPangu',
    ofType('PanguEmbedded', 'PanguEmbeddedForCausalLM'),
    'architecture "PanguEmbeddedForCausalLM" is not supported',
  ],
  ['Phi 2', ofType('phi', 'PhiForCausalLM'), UNKNOWN],
  ['Phi 3.5 MoE', ofType('phimoe', 'PhiMoEForCausalLM'), UNKNOWN],
  ['Qwen', ofType('qwen', 'QWenLMHeadModel'), UNKNOWN],
  ['DeepSeek V3', ofType('deepseek_v3', 'DeepseekV3ForCausalLM'), UNKNOWN],
  [
    'Llama 4',
    {
      architectures: ['Llama4ForConditionalGeneration'],
      model_type: 'llama4',
      text_config: { ...LLAMA_8B, architectures: undefined, model_type: 'llama4_text' },
    },
    'text_config: model_type "llama4_text" is not supported',
  ],
  [
    'Gemma 3n',
    {
      architectures: ['Gemma3nForConditionalGeneration'],
      model_type: 'gemma3n',
      text_config: { model_type: 'gemma3n_text' },
    },
    'text_config: model_type "gemma3n_text" is not supported',
  ],
  ['two families', { ...LLAMA_8B, model_type: 'mistral' }, 'model_type "mistral" does not belong to LlamaForCausalLM'],
];

describe('configurations as they are published', () => {
  it.each(READ)('%s is read', (_, config, family) => {
    expect(describeModel(config, 'config.json').config.architecture).toBe(family);
  });

  it.each(REFUSED)('%s is refused with what it is', (_, config, says) => {
    const { message, hint } = userError(() => describeModel(config, 'config.json'));
    expect(message).toContain(says);
    if (says.endsWith(UNKNOWN)) expect(message).not.toContain(': it is');
    expect(message).toMatch(/^config\.json: [^\n]*$/);
    expect(message).not.toContain('nearest');
    if (!message.includes('does not belong')) {
      expect(hint).toContain('docs/families.md');
      expect(hint).not.toContain('download');
    }
  });
});

const FAMILIES = join(SHARED, 'checkpoints', 'families');
describe.skipIf(!existsSync(FAMILIES))(skipReason('tiny checkpoints of 50 families'), () => {
  it.each(existsSync(FAMILIES) ? readdirSync(FAMILIES) : [])('%s is read or named as not supported', (name) => {
    const json = JSON.parse(readFileSync(join(FAMILIES, name, 'config.json'), 'utf8')) as Json;
    const known = ARCHITECTURES.find((family) => family.modelType === json['model_type']);
    if (known !== undefined) expect(describeModel(json, 'x').config.architecture).toBe(known.name);
    else expect(userError(() => describeModel(json, 'x')).message).toContain('is not supported');
  });
});
