/** Configurations of models that are not read, as they are published, and what refusals say of each. */
import { GEMMA2_9B, GEMMA3_1B, type Json, LLAMA_8B, MISTRAL_7B, QWEN2_7B, QWEN3_8B } from './publishedConfigs.js';

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
export const UNKNOWN = 'is not supported';

const ofClass = (name: string, base: Json = LLAMA_8B): Json => ({ ...base, architectures: [name] });
const ofType = (model_type: string, name: string): Json => ({ ...ofClass(name), model_type });

/** Each with what its refusal says. */
export const REFUSED: readonly (readonly [model: string, config: Json, says: string])[] = [
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
  ['Qwen', ofType('qwen', 'QWenLMHeadModel'), UNKNOWN],
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
