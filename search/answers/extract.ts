/** The answer in a text: where search-and-learn looks for it, in the normal form that it gives it. */
import { strip } from '../../python/value.js';
import { normalForm } from './normalForm.js';

const NUMBER = /-?\p{Nd}*\.?\p{Nd}+/gu;
/** A tag of Math-Shepherd's that marks the ends of steps. */
const STEP_TAG = 'ки';

/** What stands behind the last "boxed": its group, or all of it where that does not close. */
function lastBox(text: string): string {
  const behind = text.slice(text.lastIndexOf('boxed') + 'boxed'.length);
  if (!behind.startsWith('{')) return strip(behind.split('$', 1)[0]!);
  let depth = 1;
  for (let at = 1; at < behind.length; at++) {
    if (behind[at] === '{') depth++;
    else if (behind[at] === '}' && --depth === 0) return behind.slice(1, at);
  }
  return behind.slice(1);
}

const behindLast = (text: string, mark: string): string => strip(text.slice(text.lastIndexOf(mark) + mark.length));

/** A final sentence as Minerva's prompts ask for it, else a box, else what an answer is said to be, else a number. */
function found(text: string): string {
  const [begin, end] = ['final answer is $', '$. I hope'];
  if (text.includes(begin) && text.includes(end)) {
    const behind = text.slice(text.indexOf(begin) + begin.length);
    return strip(behind.split(end, 1)[0]!);
  }
  if (text.includes('boxed')) return lastBox(text);
  for (const mark of ['he answer is', 'final answer is']) if (text.includes(mark)) return behindLast(text, mark);
  const chinese = '答案是';
  if (text.includes(chinese)) return strip(strip(text.split(chinese, 2)[1]!).split('\n\n', 1)[0]!);
  return text.replaceAll(',', '').match(NUMBER)?.at(-1) ?? '';
}

/** Empty where there is none. Time is bounded: texts that are too long for an answer are only looked at. */
export function answerOf(text: string): string {
  let answer = found(text.replaceAll(STEP_TAG, '')).replace(/\n[\s\x1c-\x1f\x85]*/g, '');
  if (answer.startsWith(':')) answer = answer.slice(1);
  if (answer.endsWith('.')) answer = answer.slice(0, -1);
  if (answer.endsWith('/')) answer = answer.slice(0, -1);
  return normalForm(answer);
}
