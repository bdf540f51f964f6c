/** The flags of `run --tasks`: those of lm-evaluation-harness, in its spelling or with dashes. */
import type { Command } from 'commander';
import { existsSync } from 'node:fs';
import type { TasksRequest } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { isSet, text, wholeNumber, type Flags } from './options.js';

/** Flags that the harness writes with underscores. */
const WITH_UNDERSCORES: ReadonlySet<string> = new Set(
  (
    'include_path num_fewshot output_path log_samples apply_chat_template fewshot_as_multiturn system_instruction ' +
    'batch_size data_root'
  ).split(' '),
);

/** The arguments with the harness's names of flags as they are spelt here; values stay as they are. */
export const harnessSpelling = (argv: readonly string[]): string[] =>
  argv.map((each) => {
    const [, name, rest = ''] = /^--([a-z_]+)(=.*)?$/s.exec(each) ?? [];
    return name !== undefined && WITH_UNDERSCORES.has(name) ? `--${name.replaceAll('_', '-')}${rest}` : each;
  });

const repeated = (value: string, before: readonly string[] | undefined): string[] => [...(before ?? []), value];

/** Flags that choose tasks and data, which `tasks` has too. */
export const addTaskSources = (command: Command): Command =>
  command.option(
    '--include-path <dir>',
    'folder of more task files (YAML of lm-evaluation-harness); may repeat',
    repeated,
  );

export const addTaskFlags = (command: Command): Command =>
  addTaskSources(
    command.option('--tasks <names>', 'tasks, groups and tags of lm-evaluation-harness, with commas between them'),
  )
    .option('--data-root <dir>', 'data sets: clones of hub repositories, or a hub cache (default: that of $HF_HOME)')
    .option('--num-fewshot <n>', 'examples before each question (default: as each task says)')
    .option('--system-instruction <text>', 'begins every prompt')
    .option('--apply-chat-template', "write prompts with the model's chat template")
    .option('--fewshot-as-multiturn [bool]', 'with a chat template: examples are turns of their own (default: true)')
    .option('--log-samples [bool]', 'write samples_*.jsonl beside the results (default: true)')
    .option('--output-path <dir>', 'the same as --out')
    .option('--batch-size <n>', 'no effect: batches are planned, and answers do not depend on them');

const MOST_SHOTS = 10_000;

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
  return {
    tasks: names,
    includePaths: taskFolders(flags),
    ...(dataRoot === undefined ? {} : { dataRoot }),
    ...(shots === undefined ? {} : { shots: wholeNumber('--num-fewshot', shots, 0, MOST_SHOTS, '5') }),
    ...(instruction === undefined ? {} : { systemInstruction: instruction }),
    ...(isSet(flags, 'applyChatTemplate') ? { appliesChatTemplate: true } : {}),
    ...(isMultiturn === undefined ? {} : { isMultiturn }),
    ...(logsSamples === undefined ? {} : { logsSamples }),
  };
}

/** Flags that only `--tasks` takes. */
const OWN = [
  ['includePath', '--include-path'],
  ['dataRoot', '--data-root'],
  ['numFewshot', '--num-fewshot'],
  ['systemInstruction', '--system-instruction'],
  ['applyChatTemplate', '--apply-chat-template'],
  ['fewshotAsMultiturn', '--fewshot-as-multiturn'],
] as const;
/** Flags that only `--task` takes. */
const OTHERS = [
  ['task', '--task'],
  ['data', '--data'],
  ['docs', '--docs'],
  ['shard', '--shard'],
] as const;

/** Refuses flags that would have no effect. */
export function refuseMixed(flags: Flags): void {
  const isTasks = flags['tasks'] !== undefined;
  for (const [name, flag] of isTasks ? OTHERS : OWN)
    if (flags[name] !== undefined)
      throw new UsageError(
        `${flag} is for --${isTasks ? 'task' : 'tasks'}, which is not given`,
        isTasks ? `leave out ${flag}` : 'give the names of tasks: --tasks mmlu --num_fewshot 5',
      );
}
