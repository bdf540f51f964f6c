/**
 * What a config.json describes that is no language model of the families that are read, as far as its `model_type` or
 * the name of its class tells. It is said in a refusal: nothing is read because of it.
 */
import { quote } from '../system/json.js';
import { DRAFT_MODEL } from './family/wholeModel.js';

/** Words, with spaces between them. */
export interface Kind {
  /** For sentences that begin with "it is". */
  readonly is: string;
  /** Each a `model_type` in lower case, with underscores; `*` stands for any letters. */
  readonly types?: string;
  /** Each a part of the name of a class. */
  readonly names?: string;
  /** Whether the language model that its text_config describes is one by itself. Default: false. */
  readonly wrapsOne?: boolean;
}

const CLASSIFIER = 'a classifier or a reward model: its head gives classes or scores, not tokens';
const PICTURES_AND_TEXTS = 'a model of pictures or sounds beside texts, without a text_config of a family that is read';

/** Of those that know a `model_type`, or a class, the first one counts. */
const KINDS: readonly Kind[] = [
  {
    is: 'a model of speech or sound',
    types:
      'whisper wav2vec2* hubert wavlm unispeech* speecht5 speech_to_text* seamless_m4t* bark ' +
      'encodec mimi moshi musicgen* vits clap moonshine* parler_tts csm dia parakeet* sew sew_d ' +
      'clvp',
    names: 'Whisper Wav2Vec Hubert SpeechSeq2Seq ForCTC TextToSpeech TextToWaveform Codec',
  },
  {
    is: 'a model of pictures',
    types:
      'vit vit_* *_vit deit beit swin* dinov2* dinov3* clip clip_* siglip* chinese_clip altclip ' +
      'align convnext* resnet regnet efficientnet mobilenet* mobilevit* detr *_detr yolos owlvit ' +
      'owlv2 segformer sam sam2* sam3* mask2former maskformer oneformer dpt depth_* timm_* blip ' +
      'groupvit zoedepth imagegpt pvt*',
    names: 'ImageClass ImageSegm SemanticSegm ObjectDetection DepthEstimation VideoClass CLIP Siglip Dinov ViT',
  },
  {
    is: 'a model of pictures and texts, in which tokens of a prompt see those behind them',
    types: 'paligemma* colpali',
    names: 'PaliGemma ColPali',
  },
  {
    is: 'an encoder with a decoder',
    types:
      '*t5 t5gemma* switch_transformers bart mbart plbart bigbird_pegasus pegasus* marian m2m_100 ' +
      'nllb_moe led blenderbot* prophetnet xlm_prophetnet fsmt mvp udop rag *encoder_decoder',
    names: 'T5 BartFor BARTFor Pegasus Marian EncoderDecoder Seq2SeqLM M2M100 Blenderbot',
  },
  {
    is: 'an encoder, which does not continue texts',
    types:
      '*bert bert_* *roberta* albert electra deberta* mpnet new gte longformer big_bird funnel ' +
      'layoutlm* xlm flaubert ernie ernie_m nezha esm roformer luke canine bros markuplm ' +
      'nystromformer yoso xmod lilt nomic_*',
    names: 'Bert BERT Electra MPNet ForMaskedLM ForPreTraining',
  },
  {
    is: CLASSIFIER,
    names:
      'Classif QuestionAnswering MultipleChoice Reward ForPrm PRM ForScore Scoring ForRank Reranker ValueHead ' +
      'Regression ForGuard Critic',
  },
  {
    is: 'a model whose tokens see those behind them, for embeddings',
    types: '*_bidir* bidir* bi_*',
    names: 'BiModel BiFor BiEncoder Bidir Encoder',
  },
  {
    is: 'an embedding model',
    types: 'nvembed gritlm colqwen* *embed *embedding*',
    names: 'Embedding EmbedModel Retriev ColBERT ColBert ColQwen Sentence GritLM Splade',
  },
  {
    is: PICTURES_AND_TEXTS,
    wrapsOne: true,
    types:
      '*_vl *_vl_* *llava* mllama idefics* internvl* phi3_v phi4mm phi4_multimodal minicpmv ' +
      'minicpmo molmo* chameleon fuyu blip_2 instructblip* glm4v* cogvlm* *_omni* kosmos* git ' +
      'florence2 pix2struct emu3 janus openvla eagle_*',
    names: 'VL Llava LLaVA LlaVa Vision Omni Audio MiniCPMV MiniCPMO MultiModal OCR ASR Eagle2 EagleX',
  },
  {
    is: DRAFT_MODEL,
    types: 'eagle eagle3 medusa hydra mlp_speculator speculator_model dflash* dspark *_mtp',
    names: 'Eagle EAGLE eagle Medusa Hydra DFlash DSpark Draft Speculator NextN MTP Mtp',
  },
  {
    is: 'a model whose layers keep a recurrent state',
    types:
      '*mamba *mamba2 rwkv* recurrent_gemma jamba bamba zamba* nemotron_h granitemoehybrid ' +
      'falcon_h1 lfm2* plamo2 xlstm qwen3_next qwen3_5* kimi_linear minimax minimax_text_01 ' +
      'olmo_hybrid hgrn* retnet',
    names: 'Mamba RWKV Rwkv Jamba Hybrid',
  },
  {
    is: 'a diffusion model of texts, whose tokens see those behind them',
    types: 'llada* dream sdar* a2d_* fast_dllm* diffu* *diffusion* mdlm sedd bd3lm',
    names: 'LLaDA Dream SDAR A2D dLLM Diffu MDLM',
  },
  {
    is: 'a model of time series',
    types: 'timesfm* patchts* informer autoformer time_series_transformer chronos* time_moe moirai',
    names: 'TimesFm PatchTS TimeMoe ForPrediction',
  },
  { is: 'BitNet, whose layers compute something else', types: 'bitnet', names: 'BitNet Bitnet' },
  { is: PICTURES_AND_TEXTS, wrapsOne: true, names: 'ForConditionalGeneration ImageTextToText' },
];

const MAX_CHARACTERS = 200;

const textOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_CHARACTERS) : '');
const wordsOf = (list = ''): readonly string[] => list.split(' ').filter((word) => word !== '');

/** Whether a word with stars at its ends is `type`. */
function isType(word: string, type: string): boolean {
  const [first, last] = [word.startsWith('*'), word.endsWith('*')];
  const core = word.slice(first ? 1 : 0, last ? -1 : undefined);
  if (first && last) return type.includes(core);
  return first ? type.endsWith(core) : last ? type.startsWith(core) : type === core;
}

/** What a model is; undefined where neither its `model_type` nor the name of its class tells. */
export function otherKind(modelType: unknown, className: unknown): Kind | undefined {
  const type = textOf(modelType).toLowerCase().replaceAll('-', '_');
  const name = textOf(className);
  const byType = KINDS.find(({ types }) => wordsOf(types).some((word) => isType(word, type)));
  const byName = KINDS.find(({ names }) => wordsOf(names).some((word) => name.includes(word)));
  // The class says what is made of the language model inside.
  return byType === undefined || byType.wrapsOne === true ? (byName ?? byType) : byType;
}

/** Tensors that no language model has by itself, and what a model with such a one is. */
const TENSORS: readonly (readonly [tensor: RegExp, is: string])[] = [
  [/^(?:model\.)?(?:fc\.weight|d2t|t2d|midlayer\.|medusa_head\b|\d+\.\d+\.linear\.weight$)/, DRAFT_MODEL],
  [/^(?:model\.)?(?:score|classifier|v_head|value_head|reward_head|regression_layer)\./, CLASSIFIER],
];

/** A line on the first tensor that tells what the weights are of; empty where none does. */
export function kindOfWeights(tensors: Iterable<string>): readonly string[] {
  for (const name of tensors)
    for (const [tensor, is] of TENSORS) if (tensor.test(name)) return [`${quote(name, 80).slice(1, -1)} is of ${is}`];
  return [];
}
