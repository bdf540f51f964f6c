/** What verifying has compared, and what differs: counts by check, and the first differences in full. */
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';

/** What is checked, in the order in which it is told. */
export const CHECKS = ['samples', 'data', 'metrics', 'settings', 'model', 'answers'] as const;
export type CheckName = (typeof CHECKS)[number];

/** Something that is not as it was recorded. Values are clipped and safe to print. */
export interface Difference {
  readonly check: CheckName;
  /** Absent where it is of the whole run. */
  readonly task?: string;
  /** `doc_id` in the samples. */
  readonly doc?: number;
  readonly what: string;
  readonly recorded: string;
  readonly computed: string;
}

export interface Check {
  /** Things that were compared: lines, documents, figures, fields, answers. */
  readonly compared: number;
  readonly differing: number;
  /** Why it could not be done, or not in full; absent where it was. */
  readonly unchecked?: string;
}

const MAX_SHOWN = 100;
const MAX_LETTERS = 120;

const shown = (value: unknown): string =>
  typeof value === 'string' && value.length <= MAX_LETTERS && /^[\w.,+:% -]*$/.test(value)
    ? value
    : quote(value, MAX_LETTERS);

export class Findings {
  readonly #compared = new Map<CheckName, number>();
  readonly #differing = new Map<CheckName, number>();
  readonly #unchecked = new Map<CheckName, string>();
  readonly #first: Difference[] = [];

  /** Counts what was compared. */
  compared(check: CheckName, number = 1): void {
    this.#compared.set(check, (this.#compared.get(check) ?? 0) + number);
  }

  /** Notes a difference between values of any kind. */
  differ(
    check: CheckName,
    what: string,
    {
      recorded,
      computed,
      ...place
    }: Pick<Difference, 'task' | 'doc'> & {
      readonly recorded: unknown;
      readonly computed: unknown;
    },
  ): void {
    this.#differing.set(check, (this.#differing.get(check) ?? 0) + 1);
    const ofCheck = this.#first.filter((each) => each.check === check).length;
    if (ofCheck < MAX_SHOWN)
      this.#first.push({ check, ...place, what, recorded: shown(recorded), computed: shown(computed) });
  }

  /** Says why a check is not done, or not in full. The first reason counts. */
  leaveOut(check: CheckName, why: string): void {
    if (!this.#unchecked.has(check)) this.#unchecked.set(check, why);
  }

  of(check: CheckName): Check {
    const why = this.#unchecked.get(check);
    return {
      compared: this.#compared.get(check) ?? 0,
      differing: this.#differing.get(check) ?? 0,
      ...defined({ unchecked: why === undefined ? undefined : why }),
    };
  }

  /** The first of each check, in the order of the checks. */
  get differences(): readonly Difference[] {
    return CHECKS.flatMap((check) => this.#first.filter((each) => each.check === check));
  }
}
