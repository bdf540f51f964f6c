/** Figures of tasks and groups from results_*.json, in the order of the tree of groups. */
import type { Block, GroupFiles, RunFiles } from '../../evaluate/compare/findRuns.js';
import { isRecord } from '../../system/json.js';
import type { Figure, TaskResult } from '../document/results.js';
import { byError, wilson } from './intervals.js';

const MAX_FIGURES = 40;
const MAX_DEPTH = 50;
/** Metrics of which every question is right or wrong; the others' files do not say. */
const ARE_SHARES =
  /^(acc|acc_norm|acc_bytes|acc_mutual_info|exact_match|pass@\d+|mc[12]|em|f1|prompt_level_.*_acc|inst_level_.*_acc)$/;
const IS_BINARY = /^(acc|acc_norm|acc_bytes|acc_mutual_info|exact_match)$/;

const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;

/** A share of all questions, when what is right is a whole number of them. */
function intervalOf(metric: string, value: number, error: number | null, questions: number | null, isTask: boolean) {
  const right = value * (questions ?? NaN);
  const isCount = Math.abs(right - Math.round(right)) < 1e-6 * Math.max(1, right);
  if (isTask && IS_BINARY.test(metric) && isCount && value >= 0 && value <= 1)
    return wilson(Math.round(right), questions!);
  return error === null ? null : byError(value, error);
}

function figuresOf(block: Block, better: Block, questions: number | null, isTask: boolean): Figure[] {
  const figures: Figure[] = [];
  for (const [key, value] of Object.entries(block)) {
    const [, metric, filter] = /^(.{1,200}?)(?<!_stderr),(.{1,200})$/s.exec(key) ?? [];
    if (metric === undefined || filter === undefined || figures.length >= MAX_FIGURES) continue;
    const number = numberOf(value);
    if (number === null) continue;
    const error = numberOf(block[`${metric}_stderr,${filter}`]);
    const isBetter = Object.hasOwn(better, metric) ? better[metric] : undefined;
    figures.push({
      metric,
      filter,
      value: number,
      error,
      interval: intervalOf(metric, number, error, questions, isTask),
      isShare: ARE_SHARES.test(metric) && number >= 0 && number <= 1,
      isHigherBetter: typeof isBetter === 'boolean' ? isBetter : null,
    });
  }
  return figures;
}

const questionsOf = (figures: Block): number | null => numberOf(figures['sample_len']);

/** Groups before their members, each with its depth; tasks in no group as they come. */
export function taskResultsOf(run: RunFiles): TaskResult[] {
  const { tasks, groups, content } = run;
  const found: TaskResult[] = [];
  const seen = new Set<string>();
  const better: Block = isRecord(content['higher_is_better']) ? content['higher_is_better'] : {};
  const visit = (name: string, depth: number): void => {
    if (seen.has(name) || depth > MAX_DEPTH) return;
    seen.add(name);
    const group: GroupFiles | undefined = groups.get(name);
    const task = tasks.get(name);
    const figures = group?.figures ?? task?.figures;
    if (figures === undefined) return;
    const questions = questionsOf(figures);
    const ofGroup = better[name];
    const isBetter = task?.isHigherBetter ?? (isRecord(ofGroup) ? ofGroup : {});
    found.push({
      task: name,
      depth,
      kind: group === undefined ? 'task' : 'group',
      questions,
      shots: numberOf(task?.shots),
      figures: figuresOf(figures, isBetter, questions, group === undefined),
    });
    for (const member of group?.members ?? []) visit(member, depth + 1);
  };
  const members = new Set([...groups.values()].flatMap((group) => group.members));
  for (const name of [...groups.keys(), ...tasks.keys()]) if (!members.has(name)) visit(name, 0);
  // Groups in a circle have no outermost one.
  for (const name of [...groups.keys(), ...tasks.keys()]) visit(name, 0);
  return found;
}
