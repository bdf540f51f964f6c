/** What a head of classes is: the classes of config.json that have it, its tensors, and what its numbers mean. */
import { isRecord } from '../../system/json.js';
import type { Layout } from './layout.js';
import type { HeadLayer, Json } from '../model/model.js';
import type { ShapeOf } from '../model/tensors.js';

/** What is known of a checkpoint where its head is read. */
export interface HeadFile {
  readonly json: Json;
  readonly hidden: number;
  /** Undefined for all tensors where there are no weights, or where they have not been read. */
  readonly shapeOf: ShapeOf;
}

/** A score of a row: one number, or one for each class where none of them is what is asked for. */
export type Score = number | readonly number[];

/** How the numbers of a row become its score, in float64. */
export interface ScoreRule {
  /** For users, of so many classes: `probability of class 1`. */
  readonly is: (classes: number) => string;
  readonly of: (logits: readonly number[]) => Score;
  /** Another score of the same row, and the name of its field. */
  readonly beside?: { readonly name: string; readonly of: (logits: readonly number[]) => number };
}

export interface HeadRecord {
  /** For users: `process reward`. */
  readonly kind: string;
  /** The published models that have it. */
  readonly covers: string;
  /**
   * Classes of config.json: of any family, whose name ends in this instead of `ForCausalLM`; or by name, each with its
   * family.
   */
  readonly classes: { readonly suffix: string } | Readonly<Record<string, string>>;
  readonly layers: (file: HeadFile) => readonly HeadLayer[];
  readonly score: ScoreRule;
  readonly layout: Layout;
}

/** Most classes of a head, more than any published one has. A head of a vocabulary is none of classes. */
export const MAX_CLASSES = 4096;

/** Classes that config.json names: labels by number, or how many. */
export function statedClasses({ id2label: labels, num_labels: count }: Json): number | undefined {
  const stated = isRecord(labels) ? Object.keys(labels).length : count;
  return typeof stated === 'number' && Number.isInteger(stated) && stated > 0 && stated <= MAX_CLASSES
    ? stated
    : undefined;
}

/** Rows of a module's matrix; undefined where there is none, or where they are none of a head. */
export function storedRows(module: string, shapeOf: ShapeOf): number | undefined {
  const rows = shapeOf(`${module}.weight`)?.[0];
  return rows !== undefined && rows > 0 && rows <= MAX_CLASSES ? rows : undefined;
}

/** A layer that has a bias if the weights do; `usually` where there are no weights. */
export const layerAsStored = (module: string, rows: number, shapeOf: ShapeOf, usually: boolean): HeadLayer => ({
  module,
  rows,
  isBiased: shapeOf(`${module}.weight`) === undefined ? usually : shapeOf(`${module}.bias`) !== undefined,
});

// Rules, in float64.

export function softmax(logits: readonly number[]): readonly number[] {
  const top = Math.max(...logits);
  const exps = logits.map((each) => Math.exp(each - top));
  const total = exps.reduce((sum, each) => sum + each, 0);
  return exps.map((each) => each / total);
}

/** 1/(1 + e⁻ˣ), without overflow. */
export const sigmoid = (x: number): number => (x >= 0 ? 1 / (1 + Math.exp(-x)) : 1 - 1 / (1 + Math.exp(x)));

const orAll = (values: readonly number[]): Score => (values.length === 1 ? values[0]! : values);

/** The numbers as they are. */
export const RAW: ScoreRule = { is: () => 'raw number of the head', of: orAll };

export const SIGMOID: ScoreRule = { is: () => 'sigmoid of the head', of: (logits) => orAll(logits.map(sigmoid)) };

/** The second of two classes, which stands for yes. */
export const SECOND_CLASS: ScoreRule = { is: () => 'probability of class 1', of: (logits) => softmax(logits)[1]! };

/** One class: the raw number. Two: the probability of the second. More: the probability of each. */
export const LABELS: ScoreRule = {
  is: (classes) =>
    classes === 1 ? 'raw number of the label' : `probability of ${classes === 2 ? 'label 1' : 'each label'}`,
  of: (logits) => (logits.length === 1 ? logits[0]! : logits.length === 2 ? softmax(logits)[1]! : softmax(logits)),
};
