/** What stands in boxes, and the answer that a text ends with: as the public harness takes them from solutions. */

/** No answer was found. It is a text that equals itself, as in the public harness. */
export const INVALID = '[invalidanswer]';

/** Where the group that begins after `from` ends, behind its brace; undefined if it does not. */
export function groupEnd(text: string, from: number): number | undefined {
  let depth = 0;
  for (let i = from; i < text.length; i++) {
    if (text[i] === '{') depth++;
    else if (text[i] === '}' && --depth === 0) return i + 1;
  }
  return undefined;
}

/** The content of the last box of a solution; INVALID where there is none. */
export function boxedAnswer(solution: string): string {
  const spaced = solution.split('\\boxed ');
  if (spaced.length > 1) return spaced.at(-1)!.split('$')[0]!;
  const [boxed, framed] = [solution.lastIndexOf('\\boxed'), solution.lastIndexOf('\\fbox')];
  const start = boxed < 0 ? framed : boxed;
  const end = start < 0 ? undefined : groupEnd(solution, start);
  // A frame is found, and its content is not taken out of it.
  if (end === undefined || boxed < 0 || !solution.startsWith('\\boxed{', start)) return INVALID;
  return solution.slice(start + '\\boxed{'.length, end - 1);
}

const BEGIN = 'Final Answer: The final answer is';
const END = ' I hope it is correct.';

/** The last words of the model's answer, in the form that the examples show. */
export function finalAnswer(text: string): string {
  const whole = `${text}${END.trimStart()}`;
  for (let from = whole.indexOf(BEGIN); from >= 0; from = whole.indexOf(BEGIN, from + 1)) {
    const line = whole.slice(from + BEGIN.length).split('\n')[0]!;
    // One letter, mostly a period, stands before the end.
    const end = line.indexOf(END, 1);
    if (end > 0) return line.slice(0, end - 1).trim();
  }
  return INVALID;
}
