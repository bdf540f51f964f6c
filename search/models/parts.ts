/** Which texts of a path have a score each. */
import { SKYWORK } from '../../models/heads/layout.js';
import type { Layout } from '../../models/heads/layout.js';
import type { SearchOptions } from '../options.js';
import type { Step } from '../path.js';

export const DEFAULT_STEP_STOP = '\n\n';

/**
 * A part is written for the verifier and not changed any more. What follows the last separator is `open`: it is a part
 * too while nothing follows, and goes on with the next step.
 */
export interface Parts {
  readonly closed: readonly string[];
  readonly open: string | undefined;
}

/** Parts that a step adds behind what is open. */
export type PartsOf = (open: string | undefined, step: Step) => Parts;

export type PartOptions = Pick<SearchOptions, 'stepStop' | 'stepTokens' | 'compat'>;

export function partsOf({ stepStop, stepTokens, compat }: PartOptions, layout: Layout): PartsOf {
  const separator = stepStop ?? DEFAULT_STEP_STOP;
  // search-and-learn gives this verifier lines.
  if (compat === 'sal') return splitWhole(layout === SKYWORK ? '\n' : separator);
  return (_, step) => ({ closed: bareParts(step, stepTokens === undefined ? separator : undefined), open: undefined });
}

/** The whole text is split, and an empty part behind the last separator is one as well. */
const splitWhole =
  (separator: string): PartsOf =>
  (before, { text }) => {
    const parts = `${before ?? ''}${text}`.split(separator);
    return { closed: parts.slice(0, -1), open: parts.at(-1)! };
  };

/**
 * Steps without their separators; none where there is no text. A step that was drawn to the end of the text has several
 * parts; blank ones between them are none. One that ended in a separator is a part, whatever else its last token has.
 */
function bareParts({ text, end }: Step, separator: string | undefined): readonly string[] {
  if (text === '') return [];
  const at = separator === undefined ? -1 : text.indexOf(separator);
  if (separator === undefined || at < 0) return [text];
  if (end === 'step') return [text.slice(at + separator.length).trim() === '' ? text.slice(0, at) : text];
  return text.split(separator).filter((part) => part.trim() !== '');
}
