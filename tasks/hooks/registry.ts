/**
 * The Python functions that are written anew here, by folder, module and name. A name alone says little: thousands of
 * task files have a utils.process_docs. So the folder of the file that names it and the data set decide as well. The
 * Python file itself is never read.
 */
import { basename, dirname } from 'node:path';
import { UserError } from '../../errors.js';
import type { TaskSettings } from '../definition/settings.js';
import { Hook } from '../definition/yaml.js';
import * as exams from './documents.js';
import * as truthful from './documents.js';
import * as questions from './documents.js';
import { gpqaDocument, type GpqaForm } from './documents.js';
import type { Ported, Ports } from './hook.js';
import { instructionResults } from './instructions.js';
import { hardProblem, mathExamples, mathResults, problemText } from './mathAnswers.js';
import * as reading from './reading.js';
import * as sentences from './sentences.js';

export interface HookedTask {
  readonly dataset: string | undefined;
  readonly outputType: string | undefined;
}

interface Registered {
  readonly dataset: string;
  /** Two folders of one name differ by what they ask for. */
  readonly outputType?: string;
  readonly hook: Ported;
}

const CATEGORIES =
  'biology business chemistry computer_science economics engineering health history law math other philosophy ' +
  'physics psychology';

const field = (run: Ports['field']): Ported => ({ field: run });
const document = (run: Ports['document']): Ported => ({ document: run });
const shuffled = (form: GpqaForm): Ported => ({ shuffled: gpqaDocument(form) });
const results = (run: Ports['results']): Ported => ({ results: run });

const IFEVAL_NOTE =
  'languages (response_language, english_capital, english_lowercase) and sentences (number_sentences) are found by ' +
  "tilewright's own rules, not by langdetect and nltk: verdicts on these instructions may differ";
/** Classes of BIG-Bench-Hard's filters, in two folders. */
const HARD_FILTERS = {
  MultiChoiceRegexFilter: '!choices_in_input',
  MapRegexFilter: '!map_regex',
  NumberParseRegexFilter: '!number_regex',
  WordSortFilter: '!word_sort',
};
const MATH_SET = 'DigitalLearningGmbH/MATH-lighteval';
const MATH_NOTE =
  "answers are read and compared by tilewright's own rules, not by Math-Verify and sympy: a few in a hundred " +
  'verdicts on unusual answers may differ';
const IFEVAL_SETS = ['google/IFEval', 'wis-k/instruction-following-eval'];

/** The forms that generate have one function, in three folders. */
const GPQA_TEXTS = shuffled({ hasList: true });

const TABLE: readonly (readonly [name: string, dataset: string, hook: Ported, outputType?: string])[] = [
  ['hellaswag/utils.process_docs', 'Rowan/hellaswag', document(sentences.hellaswagDocument)],
  ['winogrande/preprocess_winogrande.doc_to_text', 'allenai/winogrande', field(sentences.winograndeText)],
  ['winogrande/preprocess_winogrande.doc_to_target', 'allenai/winogrande', field(sentences.winograndeTarget)],
  ['winogrande/preprocess_winogrande.doc_to_choice', 'allenai/winogrande', field(sentences.winograndeChoices)],
  ['copa/utils.doc_to_text', 'aps/super_glue', field(sentences.copaText)],
  ['copa/utils.doc_to_target', 'aps/super_glue', field(sentences.copaTarget)],
  ['copa/utils.doc_to_choice', 'aps/super_glue', field(sentences.copaChoices)],
  ['race/preprocess_race.doc_to_text', 'EleutherAI/race', field(reading.raceText)],
  ['race/preprocess_race.doc_to_target', 'EleutherAI/race', field(reading.raceTarget)],
  ['race/preprocess_race.doc_to_choice', 'EleutherAI/race', field(reading.raceChoices)],
  ['musr/utils.doc_to_text', 'TAUR-Lab/MuSR', field(reading.musrText)],
  ['musr/utils.doc_to_choice', 'TAUR-Lab/MuSR', field(reading.musrChoices)],
  ...['wikitext_detokenizer', 'process_results'].map(
    (name) =>
      [
        `wikitext/preprocess_wikitext.${name}`,
        'EleutherAI/wikitext_document_level',
        name === 'process_results' ? results(reading.wikitextResults) : field(reading.wikitextTarget),
      ] as const,
  ),
  ['gpqa/utils.process_docs', 'Idavidrein/gpqa', shuffled({ dropsNotes: true })],
  ['zeroshot/utils.process_docs', 'Idavidrein/gpqa', shuffled({})],
  ...['cot_zeroshot', 'cot_n_shot', 'generative'].map(
    (folder) => [`${folder}/utils.process_docs`, 'Idavidrein/gpqa', GPQA_TEXTS] as const,
  ),
  ['truthfulqa/utils.process_results_mc2', 'truthfulqa/truthful_qa', results(questions.truthfulShare)],
  ['truthfulqa/utils.process_docs_gen', 'truthfulqa/truthful_qa', document(truthful.truthfulDocument)],
  ['truthfulqa/utils.process_results_gen', 'truthfulqa/truthful_qa', { texts: truthful.truthfulScores }],
  ...IFEVAL_SETS.flatMap((dataset) => [
    ['ifeval/utils.process_results', dataset, { texts: instructionResults, note: IFEVAL_NOTE }] as const,
    ['ifeval/utils.agg_inst_level_acc', dataset, { aggregation: 'mean_of_all' }] as const,
  ]),
  ...['zeroshot', 'cot_zeroshot'].flatMap((folder) =>
    Object.entries(HARD_FILTERS).map(
      ([name, filter]) => [`${folder}/utils.${name}`, 'SaylorTwift/bbh', { filter }] as const,
    ),
  ),
  ['math/utils.process_docs', MATH_SET, document(hardProblem)],
  ['math/utils.doc_to_text', MATH_SET, field(problemText)],
  ['math/utils.process_results', MATH_SET, { texts: mathResults, note: MATH_NOTE }],
  ['math/utils.list_fewshot_samples', MATH_SET, { samples: mathExamples }],
  ['logiqa/utils_logiqa.doc_to_text', 'EleutherAI/logiqa', field(exams.logiqaText)],
  ['logiqa/utils_logiqa.doc_to_target', 'EleutherAI/logiqa', field(exams.logiqaTarget)],
  ['logiqa2/utils_logiqa2.doc_to_text', 'baber/logiqa2', field(exams.logiqa2Text)],
  ['mathqa/utils.doc_to_choice', 'regisss/math_qa', field(exams.mathqaChoices)],
  ['medqa/preprocess_medqa.doc_to_text', 'GBaker/MedQA-USMLE-4-options-hf', field(exams.medqaText)],
  ['medqa/preprocess_medqa.doc_to_target', 'GBaker/MedQA-USMLE-4-options-hf', field(exams.medqaTarget)],
  ['medmcqa/utils_medmcqa.doc_to_text', 'openlifescienceai/medmcqa', field(exams.medmcqaText)],
  ['pubmedqa/preprocess_pubmedqa.doc_to_text', 'bigbio/pubmed_qa', field(exams.pubmedqaText)],
  ['mnli/utils.doc_to_text', 'nyu-mll/glue', field(exams.mnliText)],
  ['arithmetic/utils.process_docs', 'json', document(exams.arithmeticDocument)],
  ['wsc273/utils.process_doc', 'lighteval/winograd_wsc', document(exams.schemaDocument)],
  ['arc_challenge/utils.process_docs', 'allenai/ai2_arc', document(exams.fourChoices)],
  ['xwinograd/utils.doc_to_text', 'Muennighoff/xwinograd', field(sentences.winograndeText)],
  ['xwinograd/utils.doc_to_target', 'Muennighoff/xwinograd', field(sentences.winograndeTarget)],
  ['xwinograd/utils.doc_to_choice', 'Muennighoff/xwinograd', field(sentences.winograndeChoices)],
  ['mmlu_pro/utils.doc_to_text', 'TIGER-Lab/MMLU-Pro', field(questions.lettersText), 'multiple_choice'],
  ['mmlu_pro/utils.doc_to_choice', 'TIGER-Lab/MMLU-Pro', field(questions.lettersChoices), 'multiple_choice'],
  ['mmlu_pro/utils.doc_to_text', 'TIGER-Lab/MMLU-Pro', field(questions.reasoningText), 'generate_until'],
  ['mmlu_pro/utils.fewshot_to_text', 'TIGER-Lab/MMLU-Pro', field(questions.reasoningText), 'generate_until'],
  ['mmlu_pro/utils.fewshot_to_target', 'TIGER-Lab/MMLU-Pro', field(questions.reasoningTarget), 'generate_until'],
  ...CATEGORIES.split(' ').map(
    (category) =>
      [
        `mmlu_pro/utils.process_${category}`,
        'TIGER-Lab/MMLU-Pro',
        document(questions.ofCategory(category.replaceAll('_', ' '))),
      ] as const,
  ),
];

/** What every task of the public harness calls so is scikit-learn's, whatever the data set. */
const WEIGHTED: Ported = { aggregation: 'weighted_f1' };

/** Functions of which a module has one for each subject: what they keep follows from their names. */
const FAMILIES: readonly (readonly [dataset: RegExp, module: string, made: (subject: string) => Ported])[] = [
  [/^openai\/MMMLU$/, 'utils.process_', (subject) => document(questions.ofSubject(subject))],
  [/^Cohere\w+\/Global-MMLU$/, 'utils.process_', (subject) => document(questions.ofColumn('subject', subject))],
  [/^Cohere\w+\/Global-MMLU-Lite$/, 'utils.process_', (area) => document(questions.ofColumn('subject_category', area))],
  [/./, 'utils.weighted_f1_score', () => WEIGHTED],
  [/./, 'metrics.weighted_f1_score', () => WEIGHTED],
  [/^hails\/bigbench$/, 'utils.filter_multiple_choice', () => document(questions.withChoices)],
];

function ofFamily({ name }: Hook, dataset = ''): Ported | undefined {
  const found = FAMILIES.find(
    ([of, module]) => of.test(dataset) && name.startsWith(module) && name !== 'utils.process_docs',
  );
  return found?.[2](name.slice(found[1].length));
}

const REGISTRY = new Map<string, Registered[]>();
for (const [name, dataset, hook, outputType] of TABLE)
  REGISTRY.set(name, [
    ...(REGISTRY.get(name) ?? []),
    outputType === undefined ? { dataset, hook } : { dataset, hook, outputType },
  ]);

/** `folder/module.function` of every function that is written anew. */
export const portedHooks = (): string[] => [...REGISTRY.keys()];

const portOf = (hook: Hook, task: HookedTask): Ported | undefined =>
  ofFamily(hook, task.dataset) ??
  REGISTRY.get(nameOf(hook))?.find(
    ({ dataset, outputType }) =>
      (dataset === task.dataset || basename(dataset) === task.dataset) &&
      (outputType === undefined || outputType === task.outputType),
  )?.hook;

/** Where a function's values may differ from the public harness's; undefined where they are equal. */
export const noteOf = (hook: Hook, task: HookedTask): string | undefined => portOf(hook, task)?.note;

/** Folder, module and name. */
const nameOf = (hook: Hook): string => `${basename(dirname(hook.file))}/${hook.name}`;

/** Whether there is a function of this kind. */
export const hasPort = (hook: Hook, kind: keyof Ports, task: HookedTask): boolean =>
  portOf(hook, task)?.[kind] !== undefined;

/**
 * The function that takes a Python function's place. `where`: file, line and key that names it. Throws UserError for
 * one that nobody wrote, and for one of another kind than the key takes.
 */
export function portedHook<K extends keyof Ports>(hook: Hook, kind: K, task: HookedTask, where: string): Ports[K] {
  const folder = basename(dirname(hook.file));
  const port: Partial<Pick<Ports, K>> | undefined = portOf(hook, task);
  const known = port?.[kind];
  if (known !== undefined) return known;
  const there = portedHooks().filter((name) => name.endsWith(`/${hook.name}`));
  throw new UserError(
    `${where}: the Python function ${hook.name} is not supported in ${folder}/ for the data set ` +
      (task.dataset ?? '(none)'),
    there.length > 0
      ? `Python is not run. Written anew are ${there.slice(0, 4).join(', ')}, each for its own data set`
      : 'Python is not run. Write a template in place of the function, or choose another task',
  );
}

// Lines on tasks whose values may differ from the public harness's.

/** How many names of tasks a line has. */
const MAX_NAMES = 4;

export function notesOn(tasks: readonly TaskSettings[]): string[] {
  const found = new Map<string, string[]>();
  for (const settings of tasks) {
    const text = (key: string): string | undefined => {
      const value = settings.get(key)?.value;
      return typeof value === 'string' ? value : undefined;
    };
    const hook = settings.get('process_results')?.value;
    if (!(hook instanceof Hook)) continue;
    const note = noteOf(hook, { dataset: text('dataset_path'), outputType: text('output_type') });
    if (note !== undefined) found.set(note, [...(found.get(note) ?? []), text('task') ?? '?']);
  }
  return [...found].map(([note, names]) => {
    const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
    return `${names.slice(0, MAX_NAMES).join(', ')}${more}: ${note}`;
  });
}
