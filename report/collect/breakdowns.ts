/** The accuracy of a task by the length of its contexts and by categories of its documents. */
import { count } from '../../system/text.js';
import type { Breakdown, Slice } from '../document/results.js';
import { binaryMetrics, metricName } from './answers.js';
import { wilson } from './intervals.js';
import type { LoadedTask } from './loadRuns.js';

const MAX_METRICS = 2;
const MAX_FIELDS = 4;
const MAX_SLICES = 200;
const LENGTH_SLICES = 8;
/** With fewer questions an interval says nothing. */
const MIN_QUESTIONS = 20;

/** Questions of each slice, as places in the order of the file. */
type Members = readonly { readonly label: string; readonly members: readonly number[] }[];

function slicesOf({ set }: LoadedTask, metrics: readonly { readonly place: number }[], all: Members): Slice[] {
  const questions = [...set.questions.values()];
  return all.map(({ label, members }) => {
    const right = metrics.map(({ place }) => members.filter((member) => questions[member]!.items[place] === 1).length);
    return {
      label,
      questions: members.length,
      right,
      shares: right.map((each) => each / members.length),
      intervals: right.map((each) => wilson(each, members.length)),
    };
  });
}

/** Parts of about equal numbers of questions, in order of length; equal lengths are in one part. */
function byLength(lengths: readonly number[]): Members {
  const order = lengths.map((_, i) => i).sort((a, b) => lengths[a]! - lengths[b]!);
  const parts: number[][] = [];
  const wanted = Math.min(LENGTH_SLICES, Math.floor(order.length / MIN_QUESTIONS));
  let from = 0;
  for (let part = 1; part <= wanted; part++) {
    let to = Math.round((part * order.length) / wanted);
    while (to < order.length && to > 0 && lengths[order[to]!] === lengths[order[to - 1]!]) to++;
    if (to > from) parts.push(order.slice(from, to));
    from = Math.max(from, to);
  }
  return parts.map((members) => {
    const [least, most] = [lengths[members[0]!]!, lengths[members.at(-1)!]!];
    return { label: least === most ? count(least) : `${count(least)}–${count(most)}`, members };
  });
}

function byCategory({ values, places }: LoadedTask['categories'][number]): Members {
  const members: number[][] = values.map(() => []);
  places.forEach((place, question) => {
    if (place >= 0) members[place]!.push(question);
  });
  return values
    .map((label, i) => ({ label, members: members[i]! }))
    .sort((a, b) => b.members.length - a.members.length || (a.label < b.label ? -1 : 1));
}

/** None where no metric says of each question whether it is right. */
export function breakdownsOf(task: string, loaded: LoadedTask): Breakdown[] {
  const metrics = binaryMetrics(loaded.set).slice(0, MAX_METRICS);
  if (metrics.length === 0) return [];
  const about = { task, metrics: metrics.map(({ key }) => metricName(key)) };
  const lengths = byLength(loaded.lengths);
  const ofLength: Breakdown[] =
    lengths.length < 2
      ? []
      : [
          {
            ...about,
            by: 'length',
            kind: 'length',
            left: { slices: 0, questions: 0 },
            slices: slicesOf(loaded, metrics, lengths),
          },
        ];
  const ofCategories = loaded.categories.slice(0, MAX_FIELDS).map((category): Breakdown => {
    const all = byCategory(category);
    const left = all.slice(MAX_SLICES);
    return {
      ...about,
      by: category.field,
      kind: 'category',
      slices: slicesOf(loaded, metrics, all.slice(0, MAX_SLICES)),
      left: { slices: left.length, questions: left.reduce((sum, { members }) => sum + members.length, 0) },
    };
  });
  return [...ofLength, ...ofCategories];
}
