/** Steps, and the paths that they make. A path is known by its object: siblings may have equal texts. */

/**
 * Why a step ended: its separator, or its number of tokens; a token that ends texts; most tokens of a step; the model's
 * context or memory. `other-eos`: an end token that is not the tokenizer's own, which search-and-learn takes for no
 * end.
 */
export type StepEnd = 'step' | 'eos' | 'other-eos' | 'length' | 'context';

export interface Step {
  /** With its separator; without tokens that end texts. */
  readonly text: string;
  /** As they were drawn, with those that ended it. A text is never encoded again. */
  readonly tokens: readonly number[];
  readonly end: StepEnd;
}

export interface Problem {
  /** Unique in its file or task: its own id, or its place. Results are named by it; draws do not depend on it. */
  readonly id: string;
  readonly problem: string;
  /** What is right, as the file has it. */
  readonly answer?: string | undefined;
  /**
   * The affinity of all its requests, set by the schedule: its paths stay on the replica that has their pages. Nothing
   * else depends on it.
   */
  readonly lane?: number | undefined;
}

export interface Path {
  readonly problem: Problem;
  /** Undefined for the path without steps, which both these are undefined of. */
  readonly parent: Path | undefined;
  readonly step: Step | undefined;
  /** Number of steps. */
  readonly depth: number;
  /** Of all steps. */
  readonly text: string;
}

export const rootOf = (problem: Problem): Path => ({ problem, parent: undefined, step: undefined, depth: 0, text: '' });

export const extend = (parent: Path, step: Step): Path => ({
  problem: parent.problem,
  parent,
  step,
  depth: parent.depth + 1,
  text: parent.text + step.text,
});

export function stepsOf(path: Path): readonly Step[] {
  const steps: Step[] = [];
  for (let at: Path | undefined = path; at?.step !== undefined; at = at.parent) steps.push(at.step);
  return steps.reverse();
}
