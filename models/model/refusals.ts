/**
 * What is refused before weights are read: models that are no language model of a family, folders of other tools, and
 * paths that are no checkpoint.
 */
import { at as elementAt } from '../../system/at.js';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { quoteForShell } from '../../system/process.js';
import { fileSize, isFolder, kindAt } from '../../system/read.js';
import type { Json, Model } from './model.js';

// What any config.json may say that makes it no language model by itself, or none that reads from left to right. Such
// settings stand beside the `model_type` of a family that is read, and nothing else in the file tells.

/** What to do about a model that is not read. */
export const FAMILIES_HINT = 'docs/families.md lists the supported models and settings';

/** Keys that say the same, the value that a language model may have, and what any other one means. */
interface Switch {
  readonly keys: readonly string[];
  readonly harmless: boolean;
  readonly means: string;
}

const SEES_ALL = 'tokens see only those before them here, and in this model also those behind them';

const SWITCHES: readonly Switch[] = [
  { keys: ['is_causal', 'causal', 'causal_attention', 'use_causal_mask'], harmless: true, means: SEES_ALL },
  {
    keys: ['use_bidirectional_attention', 'bidirectional_attention', 'is_bidirectional', 'bidirectional'],
    harmless: false,
    means: SEES_ALL,
  },
  {
    keys: ['is_prefix_lm', 'use_prefix_lm', 'prefix_lm'],
    harmless: false,
    means: 'tokens see only those before them here, and in this model those of a prompt see all of it',
  },
  { keys: ['is_encoder_decoder'], harmless: false, means: 'it is an encoder with a decoder' },
  { keys: ['add_cross_attention'], harmless: false, means: 'its layers also see what another model has read' },
];

/** Keys of draft models, and what kind each is of. */
const DRAFT_KEYS: readonly (readonly [key: string, kind: string])[] = [
  ['speculators_model_type', 'speculators'],
  ['speculators_config', 'speculators'],
  ['aux_hidden_state_layer_ids', 'speculators'],
  ['dflash_config', 'DFlash'],
  ['eagle_config', 'EAGLE'],
  ['draft_vocab_size', 'EAGLE'],
  ['target_hidden_size', 'EAGLE'],
  ['medusa_num_heads', 'Medusa'],
  ['hydra_num_heads', 'Hydra'],
  ['num_target_layers', 'DFlash'],
];

/** For sentences that begin with "it is". */
export const DRAFT_MODEL = 'a draft model, which guesses tokens that another model checks';

/** The model that a draft model guesses for, where its file says so. */
function targetOf(json: Json): string {
  const config = json['speculators_config'];
  const verifier = isRecord(config) ? config['verifier'] : undefined;
  const name = (isRecord(verifier) ? verifier['name_or_path'] : undefined) ?? json['base_model_name_or_path'];
  return typeof name === 'string' && name !== '' ? ` (${quote(name)})` : '';
}

/** Throws UserError where `json` has keys of a draft model, whose file may name no class and no `model_type`. */
export function refuseDraft(json: Json, where: string): void {
  const draft = DRAFT_KEYS.find(([key]) => isGiven(json[key]));
  if (draft !== undefined) {
    const [key, kind] = draft;
    const stated = json['speculators_model_type'];
    const own = kind === 'speculators' && typeof stated === 'string' ? quote(stated).slice(1, -1) : kind;
    throw new UserError(
      `${where}: ${key} is ${quote(json[key])}: it is ${DRAFT_MODEL}${targetOf(json)}, of the kind ${own}`,
      `use the model that it guesses for; ${FAMILIES_HINT}`,
    );
  }
}

/** Throws UserError where `json` describes a part of a model, or a model whose tokens see later ones. */
export function requireWholeModel(json: Json, where: string): void {
  refuseDraft(json, where);
  for (const { keys, harmless, means } of SWITCHES)
    for (const key of keys)
      if (isGiven(json[key]) && json[key] !== harmless)
        throw new UserError(`${where}: ${key} is ${quote(json[key])}: ${means}`, FAMILIES_HINT);
}

// What a config.json describes that is no language model of the families that are read, as far as its `model_type` or
// the name of its class tells. It is said in a refusal: nothing is read because of it.

/** Words, with spaces between them. */
export interface OtherModel {
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
const KINDS: readonly OtherModel[] = [
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
      '*mamba falcon_mamba2 rwkv* recurrent_gemma jamba bamba zamba* nemotron_h granitemoehybrid ' +
      'falcon_h1 plamo2 xlstm kimi_linear minimax minimax_text_01 ' +
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
export function otherKind(modelType: unknown, className: unknown): OtherModel | undefined {
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

// Folders that hold something else than a language model, by the files that other tools put there.

/** What stands in place of config.json, what it is of, and what to do. */
const MARKS = [
  ['model_index.json', 'a diffusion pipeline, which makes pictures or sounds', FAMILIES_HINT],
  [
    'adapter_config.json',
    'an adapter, which changes another model',
    'merge it into its model first (peft: merge_and_unload), and give the folder of the result',
  ],
] as const;

/** What the hub's cache keeps of a model: a folder for each revision. */
const SNAPSHOTS = 'snapshots';

/** Throws UserError, with what the folder is, where it has no `config` and another file tells. */
export function refuseOtherFolder(dir: string, config: string): void {
  if (fileSize(config) !== undefined) return;
  for (const [name, is, hint] of MARKS)
    if (fileSize(join(dir, name)) !== undefined)
      throw new UserError(`${dir}: it is ${is}: it has ${name}, and no ${basename(config)}`, hint);
  const snapshots = join(dir, SNAPSHOTS);
  if (isFolder(snapshots) && isFolder(join(dir, 'refs')))
    throw new UserError(
      `${dir}: it is what the hub's cache keeps of a model, and the model is below it`,
      `give the folder that this lists: ls -d ${quoteForShell(snapshots)}/*`,
    );
}

/** The steps of sentence-transformers: a model, then how one vector is made of its outputs. */
const STEPS = 'modules.json';

/**
 * `model`, with a word where its folder makes embeddings of it. Throws UserError where its class is that of a model
 * without a head, which then is made for nothing else.
 */
export function besideSteps(dir: string, model: Model): Model {
  if (fileSize(join(dir, STEPS)) === undefined) return model;
  if (model.headless !== undefined)
    throw new UserError(
      `${dir}: it is an embedding model of sentence-transformers (${STEPS}): ${model.headless} has no head`,
      FAMILIES_HINT,
    );
  const note = `${dir}: ${STEPS} makes embeddings of this model; it is read as the language model that it also is`;
  return model.note === undefined ? { ...model, note } : model;
}

// What a checkpoint's path must be, before any of its files is read.

const WANTED = 'give the folder of a Hugging Face checkpoint (config.json and *.safetensors) or a .gguf file';
const LOCAL = 'models are local folders or .gguf files, and nothing is downloaded here';

const ADDRESS = /^(?:[a-z][a-z0-9+.-]{0,20}:\/\/|(?:www\.)?(?:huggingface\.co|hf\.co)\/)/i;
const PAGE = /^(?:https?:\/\/)?(?:(?:www\.)?(?:huggingface\.co|hf\.co)\/|hf:\/\/)([^?#]{1,1000})/i;
/** How the hub calls a repository, or an owner. */
const NAME = /^\w[\w.-]{0,95}$/;
/** Files and folders of one's own; a hub's name may end in anything else. */
const OWN = /\.(?:tw|json|gguf|safetensors|bin|pth)$/;

/** A model of the hub, by the name that a user gives. */
interface HubModel {
  /** `owner/name`, or the name alone of the oldest ones. */
  readonly repository: string;
  readonly revision?: string;
  /** A GGUF file of it. */
  readonly file?: string;
}

/** `owner/name`, `owner/name:Q4_K_M` and `owner/name@revision`. */
function readName(text: string): HubModel | undefined {
  const [, repository = '', mark, rest = ''] = /^([^:@]*)([:@])?(.*)$/s.exec(text.replace(/\/$/, '')) ?? [];
  const parts = repository.split('/');
  if (parts.length > 2 || !parts.every((part) => NAME.test(part)) || OWN.test(repository)) return undefined;
  if (mark !== undefined && (parts.length < 2 || !NAME.test(rest))) return undefined;
  return { repository, ...(mark === '@' ? { revision: rest } : {}) };
}

/** `https://huggingface.co/owner/name/tree/main`, also the page of one of its files. */
function readPage(text: string): HubModel | undefined {
  const parts = (PAGE.exec(text)?.[1] ?? '').split('/').filter((part) => part !== '');
  const at = parts.findIndex((part) => /^(?:tree|blob|resolve|raw)$/.test(part));
  const name = readName(parts.slice(0, at < 1 ? 2 : at).join('/'));
  if (name === undefined || /^(?:datasets|spaces|collections)$/.test(elementAt(parts, 0))) return undefined;
  const [revision, ...file] = at < 1 ? [] : parts.slice(at + 1);
  return {
    ...name,
    ...(revision === undefined || revision === 'main' ? {} : { revision }),
    ...(file.at(-1)?.endsWith('.gguf') === true ? { file: file.join('/') } : {}),
  };
}

/**
 * What a path names that is no folder; undefined if that may be anything. Names without an owner are told from slips of
 * the finger by the digit or hyphen that all but a few of them have.
 */
const hubModel = (path: string): HubModel | undefined =>
  ADDRESS.test(path) ? readPage(path) : /[\d/-]/.test(path) ? readName(path) : undefined;

/** The command that gets a model from the hub, and the folder that it then is in. */
function download({ repository, revision, file }: HubModel): string {
  const words = [
    repository,
    ...(file === undefined ? [] : [file]),
    ...(revision === undefined ? [] : ['--revision', revision]),
  ];
  return `hf download ${[...words, '--local-dir', basename(repository)].map(quoteForShell).join(' ')}`;
}

function absent(path: string): UserError {
  const isAddress = ADDRESS.test(path);
  const what = isAddress ? 'is a web address' : path.endsWith('.gguf') ? 'no such file' : 'there is no such folder';
  const message = `${path}: ${what}${isAddress || path === resolve(path) ? '' : ` in ${process.cwd()}`}`;
  if (path.endsWith('.tw'))
    return new UserError(message, `make the artifact: tilewright compile CHECKPOINT -o ${quoteForShell(path)}`);
  const model = hubModel(path);
  if (model === undefined) return new UserError(message, isAddress ? `${LOCAL}: ${WANTED}` : WANTED);
  const folder = basename(model.repository);
  const here = folder !== path && isFolder(folder) ? `; if ${quoteForShell(folder)} is that model, give it` : '';
  return new UserError(message, `${LOCAL}${here}; for the hub's ${model.repository}: ${download(model)}`);
}

/** Throws UserError, with the command that helps, where nothing is at the path of a model. */
export function requireModelAt(path: string): void {
  if (kindAt(path) === undefined) throw absent(path);
}

/** What can only be meant as a path. */
const PATH = /^(?:\.{0,2}\/|~|$)|\s/;

/**
 * Throws UserError where `path` is the name or the page of a model of the hub, or written as a path, and nothing is
 * there.
 */
export function refuseHubName(path: string): void {
  if (PATH.test(path) || ADDRESS.test(path) || hubModel(path) !== undefined) requireModelAt(path);
}

/** Throws UserError, with the command that helps, if `path` is no folder. */
export function checkFolder(path: string): void {
  requireModelAt(path);
  if (isFolder(path)) return;
  const folder = quoteForShell(dirname(path));
  throw new UserError(
    `${path} is a file, and a checkpoint is a folder (or a .gguf file)`,
    path.endsWith('.json')
      ? `give the folder ${folder}, or make weights up for this file: --init random:1`
      : `give the folder ${folder}`,
  );
}
