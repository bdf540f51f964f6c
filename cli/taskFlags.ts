/** The flags of `run --tasks`: those of lm-evaluation-harness, in its spelling or with dashes. */
import { existsSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Command } from 'commander';
import type { TasksRequest } from '../commands/runRequest.js';
import { UsageError } from '../errors.js';
import { defined } from '../system/defined.js';
import { parseGeneration, parseSamples, parseSeeds } from './askedOfTasks.js';
import { templateFlags } from './generateFlags.js';
import { addHarnessFlags } from './harnessFlags.js';
import { type Flags, isSet, text, wholeNumber } from './options.js';

const repeated = (value: string, before: readonly string[] | undefined): string[] => [...(before ?? []), value];

/** Flags that choose tasks and data, which `tasks` has too. */
export const addTaskSources = (command: Command): Command =>
  command.option(
    '--include-path <dir>',
    'folder of more task files (YAML of lm-evaluation-harness); may repeat',
    repeated,
  );

export const addTaskFlags = (command: Command): Command =>
  addHarnessFlags(
    addTaskSources(
      command.option(
        '--tasks <names>',
        'tasks, groups, tags and files of lm-evaluation-harness, with commas between them; mmlu_*: all that match',
      ),
    ),
  )
    .option('--data-root <dir>', 'data sets: clones of hub repositories, or a hub cache (default: that of $HF_HOME)')
    .option('--num-fewshot <n>', 'examples before each question (default: as each task says)')
    .option('--system-instruction <text>', 'begins every prompt')
    .option('--apply-chat-template [name]', "write prompts with the model's chat template")
    .option('--chat-template-kwargs <json>', 'variables of the chat template, such as \'{"enable_thinking": false}\'')
    .option('--fewshot-as-multiturn [bool]', 'with a chat template: examples are turns of their own (default: true)')
    .option('--log-samples [bool]', 'write samples_*.jsonl beside the results (default: true)')
    .option('--output-path <dir>', 'the same as --out; FILE.json: results as FILE_DATE.json, samples beside them')
    .option('--samples <json|file>', 'only these documents: {"arc_easy": [0, 3, 10]}')
    .option('--seed <n>', 'of the examples and of drawn texts; or four: Python, NumPy, PyTorch, examples')
    .option('--gen-kwargs <list>', 'settings of texts, over those of tasks: do_sample=true,temperature=0.7')
    .option('--predict-only', 'write what the model answers, and measure nothing');

const MAX_SHOTS = 10_000;

/** `true`, `false`, or nothing, which is true. */
function truth(flags: Flags, name: string, flag: string): boolean | undefined {
  const given = flags[name];
  if (given === undefined || typeof given === 'boolean') return given as boolean | undefined;
  const written = String(given as string).toLowerCase();
  if (/^(true|1|yes)$/.test(written)) return true;
  if (/^(false|0|no)$/.test(written)) return false;
  throw new UsageError(`${flag} ${written}: expected true or false`, `for example: ${flag} false`);
}

type TaskSources = Pick<TasksRequest, 'includePaths' | 'dataRoot'>;

export function taskFolders(flags: Flags): readonly string[] {
  const given = flags['includePath'];
  const folders = Array.isArray(given) ? (given as readonly string[]) : [];
  const missing = folders.find((folder) => !existsSync(folder));
  if (missing !== undefined)
    throw new UsageError(`--include-path ${missing}: there is no such folder`, 'give a folder of task files');
  return folders;
}

/** The part of a request that is about tasks. Throws UsageError. */
export function taskRequest(
  flags: Flags,
): TaskSources &
  Omit<TasksRequest, keyof TaskSources | 'model' | 'threads' | 'init' | 'precision' | 'sharing' | 'resume'> {
  const names = (text(flags, 'tasks') ?? '').split(',').map((name) => name.trim());
  if (names.some((name) => name === ''))
    throw new UsageError(`--tasks ${text(flags, 'tasks') ?? ''}: an empty name`, 'for example: --tasks mmlu,hellaswag');
  const shots = text(flags, 'numFewshot');
  const [instruction, dataRoot] = [text(flags, 'systemInstruction'), text(flags, 'dataRoot')];
  const [logsSamples, isMultiturn] = [
    truth(flags, 'logSamples', '--log-samples'),
    truth(flags, 'fewshotAsMultiturn', '--fewshot-as-multiturn'),
  ];
  const [seeds, samples, generation] = [text(flags, 'seed'), text(flags, 'samples'), text(flags, 'genKwargs')];
  if (samples !== undefined && text(flags, 'limit') !== undefined)
    throw new UsageError('--samples and --limit exclude each other', 'leave --limit out');
  const predictsOnly = isSet(flags, 'predictOnly');
  const output = outputPath(flags);
  if ((predictsOnly || logsSamples === true) && (output ?? text(flags, 'out')) === undefined)
    throw new UsageError(
      `${predictsOnly ? '--predict_only' : '--log_samples'} needs a folder to write to`,
      'for example: --output_path results',
    );
  if (isMultiturn === true && !('appliesChatTemplate' in templateOf(flags)))
    throw new UsageError('--fewshot_as_multiturn needs a chat template', 'add --apply_chat_template');
  const variables = templateFlags(flags);
  if ('templateVariables' in variables && !('appliesChatTemplate' in templateOf(flags)))
    throw new UsageError('variables of the chat template need one', 'add --apply_chat_template');
  return {
    tasks: names,
    includePaths: taskFolders(flags),
    ...defined({ dataRoot }),
    ...defined({ shots: shots === undefined ? undefined : wholeNumber('--num-fewshot', shots, 0, MAX_SHOTS, '5') }),
    ...defined({ systemInstruction: instruction }),
    ...templateOf(flags),
    ...variables,
    ...defined({ seeds: seeds === undefined ? undefined : parseSeeds(seeds) }),
    ...defined({ samples: samples === undefined ? undefined : parseSamples(samples) }),
    ...defined({ generation: generation === undefined ? undefined : parseGeneration(generation) }),
    ...(predictsOnly ? { predictsOnly } : {}),
    ...(output?.endsWith('.json') === true ? { resultsStem: basename(output, '.json') } : {}),
    ...defined({ isMultiturn }),
    ...(logsSamples === undefined || predictsOnly ? {} : { logsSamples }),
  };
}

/** Whether prompts are conversations, and by which of the model's templates. */
function templateOf(flags: Flags): Pick<TasksRequest, 'appliesChatTemplate' | 'templateName'> {
  const given = flags['applyChatTemplate'];
  if (given === undefined) return {};
  if (typeof given !== 'string') return { appliesChatTemplate: true };
  if (given.toLowerCase() === 'false') return {};
  if (given.toLowerCase() === 'true') return { appliesChatTemplate: true };
  if (!/^[\w-][\w.-]{0,100}$/.test(given))
    throw new UsageError(
      `--apply_chat_template ${given}: no name of a template`,
      'without a name it is the default one; the model stands before the flags: tilewright run MODEL --tasks …',
    );
  return { appliesChatTemplate: true, templateName: given };
}

/** --output_path as it is given. Throws UsageError where --out is another. */
function outputPath(flags: Flags): string | undefined {
  const [out, path] = [text(flags, 'out'), text(flags, 'outputPath')];
  if (out !== undefined && path !== undefined && out !== path)
    throw new UsageError(`--out ${out} and --output_path ${path} differ`, 'give one of them');
  if (out === '' || path === '')
    throw new UsageError(`${path === '' ? '--output_path' : '--out'} is empty`, 'for example: --output_path results');
  return path;
}

/** The folder of results: that of the file where --output_path names one. */
export function resultsFolderOf(flags: Flags): string | undefined {
  const path = outputPath(flags);
  return text(flags, 'out') ?? (path?.endsWith('.json') === true ? dirname(path) : path);
}

/** Flags that only `--tasks` takes. */
const OWN = [
  ['includePath', '--include-path'],
  ['dataRoot', '--data-root'],
  ['numFewshot', '--num-fewshot'],
  ['systemInstruction', '--system-instruction'],
  ['applyChatTemplate', '--apply-chat-template'],
  ['chatTemplateKwargs', '--chat-template-kwargs'],
  ['fewshotAsMultiturn', '--fewshot-as-multiturn'],
  ['samples', '--samples'],
  ['seed', '--seed'],
  ['genKwargs', '--gen-kwargs'],
  ['predictOnly', '--predict-only'],
  ['draft', '--draft'],
  ['draftTokens', '--draft-tokens'],
] as const;
/** Flags that only `--task` takes. */
const OTHERS = [
  ['task', '--task'],
  ['data', '--data'],
  ['docs', '--docs'],
] as const;

/** Refuses flags that would have no effect. */
export function refuseMixed(flags: Flags): void {
  const isTasks = flags['tasks'] !== undefined;
  for (const [name, flag] of isTasks ? OTHERS : OWN)
    if (flags[name] !== undefined)
      throw isTasks
        ? new UsageError(`${flag} says what to score, and so does --tasks`, `leave out ${flag}, or --tasks`)
        : new UsageError(
            `${flag} is for --tasks, which is not given`,
            'give the names of tasks: --tasks mmlu --num_fewshot 5',
          );
}
