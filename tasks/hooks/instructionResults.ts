/** IFEval's figures of a document: whether its instructions are followed, to the letter and with some leniency. */
import { strip } from '../../python/text.js';
import { isDict, isList, type Dict } from '../../python/value.js';
import { fieldOf, HookProblem, textsOf, type Scored } from './hook.js';
import { INSTRUCTIONS, type Check } from './instructions.js';
import { Settings } from './instructionSettings.js';

function checksOf(document: Dict): readonly Check[] {
  const names = textsOf(fieldOf(document, 'instruction_id_list'), 'instruction_id_list');
  const settings = fieldOf(document, 'kwargs');
  if (!isList(settings) || settings.length !== names.length || !settings.every(isDict))
    throw new HookProblem('kwargs: expected keys and values for each instruction');
  return names.map((name, i) => {
    const made = Object.hasOwn(INSTRUCTIONS, name) ? INSTRUCTIONS[name] : undefined;
    if (made === undefined) throw new HookProblem(`instruction_id_list: no instruction ${JSON.stringify(name)}`);
    return made(new Settings(settings[i] as Dict, name));
  });
}

/** The text, and without its first line, its last one, both; each of them also without asterisks. */
function lenientForms(text: string): readonly string[] {
  const lines = text.split('\n');
  const cut = [lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)].map((rest) => strip(rest.join('\n')));
  const all = [text, ...cut];
  return [...all, ...all.map((each) => each.replaceAll('*', ''))].filter((each) => strip(each) !== '');
}

const flag = (holds: boolean): number => (holds ? 1 : 0);

/** By prompt: all instructions are followed. By instruction: one value each, which are averaged over all prompts. */
export function instructionResults(document: Dict, [text = '']: readonly string[]): ReadonlyMap<string, Scored> {
  const checks = checksOf(document);
  const forms = lenientForms(text);
  const strict = checks.map((follows) => strip(text) !== '' && follows(text));
  const loose = checks.map((follows) => forms.some(follows));
  return new Map<string, Scored>([
    ['prompt_level_strict_acc', flag(strict.every(Boolean))],
    ['inst_level_strict_acc', strict.map(flag)],
    ['prompt_level_loose_acc', flag(loose.every(Boolean))],
    ['inst_level_loose_acc', loose.map(flag)],
  ]);
}
