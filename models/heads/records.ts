/** Heads of classes that are read. A new one is a record in this list. */
import {
  type HeadFile,
  type HeadRecord,
  LABELS,
  layerAsStored,
  RAW,
  SECOND_CLASS,
  SIGMOID,
  softmax,
  statedClasses,
  storedRows,
} from './head.js';
import { LINES, OUTCOME, QWEN_OUTCOME, QWEN_PROCESS, REASON_EVAL, SKYWORK } from './layout.js';
import type { ClassHead, HeadLayer } from '../model/model.js';

/** score.0, the larger of 0 and x, score.2 (Qwen2.5-Math, arXiv:2409.12122, 2501.07301). */
const twoLayers =
  (usual: number, least = 1) =>
  ({ hidden, shapeOf }: HeadFile): readonly HeadLayer[] => [
    { module: 'score.0', rows: hidden, isBiased: true },
    { module: 'score.2', rows: Math.max(least, storedRows('score.2', shapeOf) ?? usual), isBiased: true },
  ];

/** A linear layer with as many labels as config.json names, else as the weights have. */
const labels =
  (modules: readonly [string, ...string[]], hasBias: boolean) =>
  ({ json, shapeOf }: HeadFile): readonly HeadLayer[] => {
    const module = modules.find((name) => shapeOf(`${name}.weight`) !== undefined) ?? modules[0];
    const rows = statedClasses(json) ?? storedRows(module, shapeOf) ?? 2;
    return [layerAsStored(module, rows, shapeOf, hasBias)];
  };

const oneLayer =
  (module: string, rows: number) =>
  ({ shapeOf }: HeadFile): readonly HeadLayer[] => [layerAsStored(module, rows, shapeOf, true)];

export const HEADS: readonly HeadRecord[] = [
  {
    kind: 'process reward',
    covers: 'Qwen2.5-Math-PRM-7B and -72B, Qwen2.5-Math-7B-PRM800K',
    classes: { suffix: 'ForProcessRewardModel' },
    layers: twoLayers(2, 2),
    score: SECOND_CLASS,
    layout: QWEN_PROCESS,
  },
  {
    kind: 'reward',
    covers: 'Qwen2.5-Math-RM-72B',
    classes: { suffix: 'ForRewardModel' },
    layers: twoLayers(1),
    score: RAW,
    layout: QWEN_OUTCOME,
  },
  {
    kind: 'value',
    covers: 'Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B',
    classes: { suffix: 'ForPrmModel' },
    layers: oneLayer('v_head.summary', 1),
    score: SIGMOID,
    layout: SKYWORK,
  },
  {
    kind: 'sequence classification',
    covers: 'Skywork-Reward and -V2, and other models with this class',
    classes: { suffix: 'ForSequenceClassification' },
    layers: labels(['score'], false),
    score: LABELS,
    layout: OUTCOME,
  },
  {
    kind: 'token classification',
    covers: 'process reward models that TRL trains, and other models with this class',
    classes: { suffix: 'ForTokenClassification' },
    layers: labels(['score', 'classifier'], true),
    score: LABELS,
    layout: LINES,
  },
  {
    // arXiv:2404.05692: a step is wrong, right and of no use, or right and of use.
    kind: 'ReasonEval',
    covers: 'ReasonEval-7B and -34B',
    classes: { ReasonEval_7B: 'MistralForCausalLM', ReasonEval_34B: 'LlamaForCausalLM' },
    layers: oneLayer('score_head', 3),
    score: {
      is: () => 'probability of class 1 or 2 (validity)',
      of: (logits) => {
        const [, neutral = 0, positive = 0] = softmax(logits);
        return neutral + positive;
      },
      beside: { name: 'redundancy', of: (logits) => softmax(logits)[1]! },
    },
    layout: REASON_EVAL,
  },
];

/** A class of config.json that is a family with a head of classes. */
export interface NamedHead {
  readonly record: HeadRecord;
  /** The name of the family. */
  readonly family: string;
}

/** The head of a class; undefined where no record has it. `families`: names of all families. */
export function findHead(architecture: unknown, families: readonly string[]): NamedHead | undefined {
  if (typeof architecture !== 'string') return undefined;
  for (const record of HEADS) {
    const { classes } = record;
    if ('suffix' in classes && typeof classes.suffix === 'string') {
      const family = families.find((name) => isOfFamily(architecture, name, classes.suffix));
      if (family !== undefined) return { record, family };
    } else if (Object.hasOwn(classes, architecture))
      return { record, family: (classes as Readonly<Record<string, string>>)[architecture]! };
  }
  return undefined;
}

/** transformers calls some classes of a family's texts `Text`. */
const isOfFamily = (architecture: string, family: string, suffix: string): boolean =>
  ['', 'Text'].some((part) => architecture === family.replace(/(?:ForCausalLM|LMHeadModel)$/, `${part}${suffix}`));

/** The record of a model's head. */
export function recordOf({ kind }: Pick<ClassHead, 'kind'>): HeadRecord {
  const found = HEADS.find((record) => record.kind === kind);
  if (found === undefined) throw new Error(`there is no head ${kind}`);
  return found;
}
