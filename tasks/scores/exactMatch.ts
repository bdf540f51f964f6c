/** exact_match of generated texts: what the harness takes from Hugging Face's evaluate library. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { FileRegex } from '../../python/fileRegex.js';
import { isList, isTruthy, type Dict } from '../../python/value.js';

const OPTIONS: ReadonlySet<string> = new Set([
  'metric',
  'aggregation',
  'higher_is_better',
  'ignore_case',
  'ignore_punctuation',
  'ignore_numbers',
  'regexes_to_ignore',
  // Says where the harness gets the same metric from.
  'hf_evaluate',
]);
const PUNCTUATION = /[!-/:-@[-`{-~]/g;

/** Makes texts comparable as a task's entry of metric_list says. Throws UserError. */
export function comparable(entry: Dict, where: string): (text: string) => string {
  for (const key of entry.keys())
    if (!OPTIONS.has(key)) throw new UserError(`${where}: exact_match has no setting ${quote(key)}`);
  const isOn = (key: string): boolean => isTruthy(entry.get(key) ?? null);
  const given = entry.get('regexes_to_ignore') ?? [];
  const fail = (problem: string): UserError => new UserError(`${where}: exact_match ${problem}`);
  // Python's list of a text is its characters.
  const ignored = typeof given === 'string' ? [...given] : given;
  if (!isList(ignored) || !ignored.every((pattern) => typeof pattern === 'string'))
    throw fail('needs texts for regexes_to_ignore');
  const regexes = ignored.map((pattern) => new FileRegex(pattern, fail));
  return (text) => {
    let left = regexes.reduce((rest, regex) => regex.without(rest), text);
    if (isOn('ignore_case')) left = left.toLowerCase();
    if (isOn('ignore_punctuation')) left = left.replace(PUNCTUATION, '');
    if (isOn('ignore_numbers')) left = left.replace(/[0-9]/g, '');
    // NumPy's texts of fixed length lose NUL at their end.
    return left.replace(/\0+$/, '');
  };
}
