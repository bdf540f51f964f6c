/** Options of the library's functions, checked before anything is opened. */
import { z } from 'zod';
import { PREFIXES } from '../commands/runRequest.js';
import { VERIFIER_NAMES } from '../commands/verifier.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import { MAX_CACHE_TOKENS } from '../driver/names.js';
import { KV_CACHES, PRECISIONS, TARGET_CHOICES } from '../driver/precision.js';
import { UsageError } from '../errors.js';
import { FILE_TASKS } from '../evaluate/fileTasks.js';
import { OVERLONG } from '../evaluate/pathLengths.js';
import { SHARING_MODES } from '../evaluate/scorer.js';
import { checkTogether, generateFields, type GenerateOptions as WrittenOptions } from '../engine/options.js';
import { MAX_TOP_LOGPROBS } from '../engine/limits.js';
import { promptSchema } from '../engine/prompts.js';
import { ADAPTER_RANK, MAX_ADAPTER_RANK, MAX_ADAPTER_SLOTS } from '../ir/adapterRows.js';
import { CPU_ISAS } from '../ir/plan.js';
import { searchFields } from '../search/options.js';
import { isRecord } from '../system/json.js';
import type { ProgressListener } from './progress.js';

const whole = (least: number, most: number) => z.number().int().min(least).max(most);
const MAX_DEVICES = 64;

const common = {
  /** Aborts the work: the call rejects with Interrupted. */
  signal: z.instanceof(AbortSignal).optional(),
  /** Called with progress events. */
  onProgress: z.custom<ProgressListener>((value) => typeof value === 'function', 'expected a function').optional(),
};

const modelFields = {
  /** A checkpoint folder, a GGUF file, a config.json (with `init`), or an artifact. */
  model: z.string().min(1),
  /** `random:1`: made-up weights from a seed. */
  init: z
    .string()
    .regex(/^random:\d{1,15}$/, 'expected random:SEED')
    .optional(),
  target: z.enum(TARGET_CHOICES).optional(),
  precision: z.enum(PRECISIONS).optional(),
  isa: z.enum(CPU_ISAS).optional(),
  /** Largest micro-batch, tokens. */
  batchTokens: whole(32, 1 << 16).optional(),
  /** Tokens whose keys and values are kept: needed to generate. */
  cacheTokens: whole(16, MAX_CACHE_TOKENS).optional(),
  /** How keys and values are kept. Default: in the type that attention multiplies. */
  kvCache: z.enum(KV_CACHES).optional(),
  /** Steps can keep logits, which filters, penalties, biases, beams, `minNewTokens` and `topLogProbs` need. */
  logits: z.boolean().optional(),
  /** Room for LoRA adapters beside the matrices of layers, which calls of `generate` name. */
  adapters: z
    .strictObject({
      slots: whole(1, MAX_ADAPTER_SLOTS),
      rank: whole(ADAPTER_RANK, MAX_ADAPTER_RANK).multipleOf(ADAPTER_RANK),
    })
    .optional(),
};

const loadFields = {
  ...modelFields,
  /** The folder of a LoRA adapter that the whole model has. */
  adapter: z.string().min(1).optional(),
  /** Who proposes what may follow texts, which do not depend on it: `suffix`, `ngram`, `off`, or a folder. */
  draft: z.string().min(1).optional(),
  /** Most drafts of a text in a step. Default: as many as pay. */
  draftTokens: z.union([z.literal('auto'), whole(1, MAX_DRAFTS)]).optional(),
  threads: whole(1, 1024).optional(),
  devices: z.union([whole(1, MAX_DEVICES), z.literal('all')]).optional(),
  parallel: z
    .union([z.literal('auto'), z.strictObject({ replicas: whole(1, MAX_DEVICES), stages: whole(1, MAX_DEVICES) })])
    .optional(),
};

const TASK_NAMES = FILE_TASKS.map(({ name }) => name);

const scoreFields = {
  task: z.string().refine((name) => TASK_NAMES.includes(name), `expected one of ${TASK_NAMES.join(', ')}`),
  /** A file of JSON lines, or records in memory. */
  data: z.union([z.string().min(1), z.array(z.record(z.string(), z.unknown())).readonly()]),
  sharing: z.enum(SHARING_MODES).optional(),
  /** Whether beginnings that questions have in common are kept in the memory that `cacheTokens` gave the model. */
  prefixes: z.enum(PREFIXES).optional(),
  overlong: z.enum(OVERLONG).optional(),
  /** Half-open ranges of question numbers; without `end`, to the last question. */
  docs: z
    .array(
      z
        .strictObject({ first: whole(0, 1e12), end: whole(1, 1e12).optional() })
        .refine(({ first, end = Infinity }) => end > first, 'expected an end after first'),
    )
    .min(1)
    .readonly()
    .optional(),
  /** At most this many questions; below 1, this fraction of them. */
  limit: z
    .number()
    .positive()
    .refine((limit) => limit < 1 || Number.isInteger(limit), 'expected a count, or a share below 1')
    .optional(),
  /** Folder for results, samples and the journal. Nothing is written without it. */
  output: z.string().min(1).optional(),
  /** The model's name in results. */
  modelName: z.string().min(1).optional(),
  /** Continue with the journal in `output`. */
  resume: z.boolean().optional(),
};

const PROMPT = z.union([z.string().min(1), promptSchema]);

const generateOptions = {
  /** Texts, or one of `prompt`, `tokens` and `messages` each. */
  prompts: z.array(PROMPT).min(1).readonly(),
  ...generateFields,
  /** The folder of a LoRA adapter that these texts are computed with: for a model that is opened with `adapters`. */
  adapter: z.string().min(1).optional(),
  /** What texts have to be: for a model that is opened with `logits`, and not with `beams`. */
  structure: z
    .union(
      [
        z.strictObject({ json: z.union([z.boolean(), z.record(z.string(), z.unknown())]) }),
        z.strictObject({ jsonObject: z.literal(true) }),
        z.strictObject({ regex: z.string() }),
        z.strictObject({ choice: z.array(z.string()).min(1).max(10_000).readonly() }),
      ],
      'expected one of { json: SCHEMA }, { jsonObject: true }, { regex } and { choice: [TEXT, …] }',
    )
    .optional(),
  /** Ends every text with what there is: its reason is `aborted`. */
  signal: common.signal,
};

const MODEL_NAME = z.string().min(1).max(200);
const MAX_INPUTS = 1_000_000;

/** What every call of an engine may say. */
const timing = {
  /** Which model; may be left out where the engine has one. */
  model: MODEL_NAME.optional(),
  /** When what is asked for ends with what there is: a moment, or milliseconds from now. */
  deadline: z.union([z.date(), z.number()]).optional(),
  /** Calls with a lower number go first. Default 0. */
  priority: z.number().int().optional(),
  signal: common.signal,
};

const position = whole(0, 1 << 24);

const SCHEMAS = {
  openEngine: z.strictObject({
    /** By name. */
    models: z.record(MODEL_NAME, z.strictObject(loadFields)),
    /** Texts and rows that may wait for their first step, for each model. Default: any number. */
    queueLimit: whole(1, 1e9).optional(),
    /** Bytes for keys and values of all models on each device. Default: what is left beside weights and activations. */
    memory: whole(1 << 20, 2 ** 46).optional(),
    /** Shares of the models in it, in their order. Default: memory moves to where it saves most time. */
    memorySplit: z.array(z.number().positive().max(1e6)).min(1).readonly().optional(),
    ...common,
  }),
  'engine.load': z.strictObject({ ...loadFields, ...common }),
  'engine.generate': z.strictObject({ ...generateOptions, ...timing }),
  'engine.score': z.strictObject({
    inputs: z
      .array(
        z.strictObject({
          prompt: PROMPT,
          /** Rows that are asked for. Default: after every token the next one. */
          rows: z
            .array(
              z.strictObject({
                /** The row after this token, from 0. */
                position,
                /** Default: the token that follows. */
                target: whole(0, 2 ** 31 - 1).optional(),
                /** As many of the most likely tokens. */
                top: whole(0, MAX_TOP_LOGPROBS).optional(),
              }),
            )
            .readonly()
            .optional(),
        }),
      )
      .min(1)
      .max(MAX_INPUTS)
      .readonly(),
    ...timing,
  }),
  'engine.reward': z.strictObject({
    /** Each as a line of `tilewright reward`: `question` and `steps`, `messages`, or `tokens` and `rows`. */
    inputs: z.array(z.record(z.string(), z.unknown())).min(1).max(MAX_INPUTS).readonly(),
    /** What a language model was trained as. Default: what the name of its folder says. */
    verifier: z.enum(VERIFIER_NAMES).optional(),
    ...timing,
  }),
  'engine.search': z.strictObject({
    ...searchFields,
    /** Names of models. `majority` needs no verifier. */
    generator: MODEL_NAME,
    verifier: MODEL_NAME.optional(),
    /** What a verifier with the class of a language model was trained as. Default: what its folder's name says. */
    verifierKind: z.enum(VERIFIER_NAMES).optional(),
    /** Texts, or records with `problem`, and `answer` and `id` if they are known. */
    problems: z
      .array(z.union([z.string().min(1), z.record(z.string(), z.unknown())]))
      .min(1)
      .max(MAX_INPUTS)
      .readonly(),
    /** Problems that are searched at a time. Default: as many as memory has room for. */
    atOnce: whole(1, MAX_INPUTS).optional(),
    signal: common.signal,
  }),
  openModel: z.strictObject({ ...loadFields, ...common }),
  score: z.strictObject({ ...scoreFields, ...common }),
  generate: z.strictObject(generateOptions),
  run: z.strictObject({ ...loadFields, ...scoreFields, ...common }),
  compile: z.strictObject({ ...modelFields, output: z.string().min(1), ...common }),
  tune: z.strictObject({
    artifact: z.string().min(1),
    budgetSeconds: z.number().positive().optional(),
    threads: whole(1, 1024).optional(),
    database: z.string().min(1).optional(),
    ...common,
  }),
  quantize: z.strictObject({
    model: z.string().min(1),
    output: z.string().min(1),
    method: z.enum(['gptq', 'round']).optional(),
    /** A text file. */
    calibration: z.string().min(1).optional(),
    bits: z.union([z.literal(4), z.literal(8)]).optional(),
    group: z.union([z.literal(128), z.literal(64), z.literal(32), z.literal(-1)]).optional(),
    symmetric: z.boolean().optional(),
    actOrder: z.boolean().optional(),
    samples: whole(1, 1 << 16).optional(),
    length: whole(1, 1 << 16).optional(),
    seed: whole(0, 2 ** 32 - 1).optional(),
    threads: whole(1, 1024).optional(),
    ...common,
  }),
};

export type ModelOptions = Readonly<z.infer<(typeof SCHEMAS)['openModel']>>;
export type ScoreOptions = Readonly<z.infer<(typeof SCHEMAS)['score']>>;
export type GenerateOptions = Readonly<z.infer<(typeof SCHEMAS)['generate']>>;
export type EngineOptions = Readonly<z.infer<(typeof SCHEMAS)['openEngine']>>;
export type EngineGenerateOptions = Readonly<z.infer<(typeof SCHEMAS)['engine.generate']>>;
export type RowsOptions = Readonly<z.infer<(typeof SCHEMAS)['engine.score']>>;
export type RewardOptions = Readonly<z.infer<(typeof SCHEMAS)['engine.reward']>>;
export type EngineSearchOptions = Readonly<z.infer<(typeof SCHEMAS)['engine.search']>>;
export type RunOptions = ModelOptions & ScoreOptions;
export type CompileOptions = Readonly<z.infer<(typeof SCHEMAS)['compile']>>;
export type QuantizeOptions = Readonly<z.infer<(typeof SCHEMAS)['quantize']>>;
export type TuneOptions = Readonly<z.infer<(typeof SCHEMAS)['tune']>>;

/** An optional field given as undefined counts as absent. */
export type Present<T> = { [K in keyof T]: Exclude<T[K], undefined> };

export const present = <T extends object>(options: T): Present<T> =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Present<T>;

/** Other engines call the length of a text so. Throws UsageError. */
function refuseMaxTokens(name: keyof typeof SCHEMAS, options: unknown): void {
  if (!isRecord(options) || options['maxTokens'] === undefined) return;
  throw name === 'generate' || name === 'engine.generate'
    ? new UsageError('generate: maxTokens: there is no such field', 'the length of a text is maxNewTokens')
    : new UsageError(
        `${name}: maxTokens: there is no such field`,
        'the size of a micro-batch is batchTokens; the length of a text, maxNewTokens, is for model.generate',
      );
}

/** Throws UsageError that names the field. */
export function checkOptions(name: keyof typeof SCHEMAS, options: unknown): void {
  const checked = SCHEMAS[name].safeParse(options);
  if (checked.success) {
    if (name === 'generate' || name === 'engine.generate') {
      checkTogether(options as WrittenOptions, (field) => field);
      if (isRecord(options) && options['structure'] !== undefined && options['beams'] !== undefined)
        throw new UsageError(`${name}: structure: a search with beams has no use for it`, 'leave one of them out');
    }
    return;
  }
  refuseMaxTokens(name, options);
  const [issue] = checked.error.issues;
  const path = issue?.path.map((part, i) =>
    typeof part === 'number' ? `[${part}]` : `${i > 0 ? '.' : ''}${String(part)}`,
  );
  const field = path === undefined || path.length === 0 ? 'options' : path.join('');
  const page = name.toLowerCase().includes('engine') ? 'docs/engine.md' : 'docs/library.md';
  throw new UsageError(`${name}: ${field}: ${issue?.message ?? 'not understood'}`, `${page} lists every field`);
}
