/** Flags of lm-evaluation-harness that do nothing here, or that other flags take the place of, and its lists. */
import { Option, type Command } from 'commander';
import { UsageError } from '../errors.js';
import { text, type Flags } from './options.js';

/** A flag, and what is said where it is given. */
type Told = readonly [flag: string, why: string];

/** The run goes on. */
const WITHOUT_EFFECT: readonly Told[] = [
  ['--batch-size <n>', 'batches are planned, and answers do not depend on them'],
  ['--max-batch-size <n>', 'batches are planned, and answers do not depend on them'],
  ['--model <name>', 'models run on kernels of tilewright'],
  ['--trust-remote-code', 'code of models and data sets is never run'],
  ['--confirm-run-unsafe-code', 'code of tasks and of models is never run'],
  ['--verbosity <level>', 'notes and warnings are on the standard error; -q leaves them out, --verbose adds details'],
  ['--write-out', 'samples_*.jsonl in --output_path hold every prompt'],
  ['--show-config', 'results_*.json in --output_path holds the settings of every task'],
  ['--cache-requests [how]', 'prompts are made while the model loads'],
  ['--use-cache <file>', 'finished documents are in --output_path; --resume goes on with them'],
  ['--check-integrity', 'there is no such check'],
  ['--metadata <json>', 'no task that can be run reads it'],
];

/** The run is refused: without them it would not be what was asked for. */
const REFUSED: readonly Told[] = [
  ['--wandb-args <args>', 'results are files: give --output_path, and upload those'],
  ['--wandb-config-args <args>', 'results are files: give --output_path, and upload those'],
  ['--trackio-args <args>', 'results are files: give --output_path, and upload those'],
  ['--hf-hub-log-args <args>', 'results are files: give --output_path, and upload those'],
  ['--config <file>', 'write its settings as flags'],
];

const ALL = [...WITHOUT_EFFECT, ...REFUSED];

const longOf = (flag: string): string => flag.split(' ')[0]!;
const nameOf = (flag: string): string =>
  longOf(flag)
    .slice(2)
    .replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
/** As the harness writes it. */
const harnessName = (flag: string): string => `--${longOf(flag).slice(2).replaceAll('-', '_')}`;

/** The harness takes several values after these. */
const LISTS: ReadonlySet<string> = new Set(['--tasks', '--model-args', '--gen-kwargs']);

/**
 * The arguments with lists of several words as one: settings after `--gen-kwargs a=1` are more of these; where the
 * model stands first, words after `--tasks` are more names.
 */
export function joinLists(argv: readonly string[]): string[] {
  const hasModel = argv[0] === 'run' && argv[1]?.startsWith('-') === false;
  const joined: string[] = [];
  let before: string | undefined, list: 'names' | 'settings' | undefined;
  for (const each of argv) {
    const goesOn = list === 'names' ? hasModel && !each.startsWith('-') : list === 'settings' && /^\w+=/.test(each);
    if (goesOn) joined.push(`${joined.pop()!},${each}`);
    else joined.push(each);
    if (before !== undefined) list = before === '--tasks' ? 'names' : 'settings';
    else if (!goesOn) list = undefined;
    before = LISTS.has(each) ? each : undefined;
  }
  return joined;
}

/** They are known, so that their values are, and help leaves them to a line of its own. */
export function addHarnessFlags(command: Command): Command {
  for (const [flag, why] of ALL) command.addOption(new Option(flag, why).hideHelp());
  return command
    .addOption(new Option('--model-args <list>', 'pretrained=MODEL, dtype=PRECISION').hideHelp())
    .addOption(new Option('--device <name>', 'cpu or cuda').hideHelp());
}

/** Lines for those without effect. Throws UsageError for a flag that is refused. */
export function harnessNotes(flags: Flags): string[] {
  for (const [flag, instead] of REFUSED)
    if (flags[nameOf(flag)] !== undefined) throw new UsageError(`${harnessName(flag)} is not supported`, instead);
  return WITHOUT_EFFECT.flatMap(([flag, why]) =>
    flags[nameOf(flag)] === undefined ? [] : [`note: ${harnessName(flag)} has no effect: ${why}`],
  );
}

/** Precisions by PyTorch's names. */
const DTYPES: Readonly<Record<string, string>> = {
  auto: 'auto',
  float32: 'f32',
  float: 'f32',
  bfloat16: 'bf16',
  float16: 'f16',
  half: 'f16',
};

/** Keys of --model_args without effect. */
const IDLE: ReadonlySet<string> = new Set(
  'trust_remote_code tokenizer_backend use_fast_tokenizer batch_size max_batch_size backend'.split(' '),
);

const DEVICES = 'say it with flags: --devices all uses every GPU, --parallel dp=2 (pp=2) how';
const NARROW =
  'say it with --quantize int8 (CPU), fp8 or int4 (Hopper); checkpoints of GPTQ and AWQ are read as they are';
const MEMORY = 'leave it out: memory is planned; --batch-tokens and --cache-tokens change the plan';

/** Keys of --model_args that are refused, and what does the same here. */
const INSTEAD: Readonly<Record<string, string>> = {
  tensor_parallel_size: DEVICES,
  pipeline_parallel_size: DEVICES,
  data_parallel_size: DEVICES,
  parallelize: DEVICES,
  device_map: DEVICES,
  load_in_8bit: NARROW,
  load_in_4bit: NARROW,
  quantization: NARROW,
  gpu_memory_utilization: MEMORY,
  swap_space: MEMORY,
  revision: 'download that revision: hf download OWNER/NAME --revision REVISION --local-dir DIR, and name DIR',
  tokenizer: 'put its files into the folder of the checkpoint',
};

export interface Translated {
  readonly model: string;
  readonly flags: Flags;
}

/** `--model_args` and `--device` as the model and flags that they stand for. Throws UsageError. */
export function translated(given: string | undefined, flags: Flags): Translated {
  const changed: Record<string, Flags[string]> = { ...flags };
  let model = given;
  const take = (name: string, flag: string, value: string, from: string): void => {
    if (changed[name] !== undefined && changed[name] !== value)
      throw new UsageError(`${from} and ${flag} ${String(changed[name])} differ`, `leave one of them out`);
    changed[name] = value;
  };
  for (const item of (text(flags, 'modelArgs') ?? '').split(',').filter((each) => each !== '')) {
    const [key = '', value = ''] = item.split(/=(.*)/s);
    const from = `--model_args ${item}`;
    if (key === 'pretrained') {
      if (model !== undefined && model !== value)
        throw new UsageError(`${from}: the model is ${model}`, 'name it once');
      model = value;
    } else if (key === 'dtype') {
      const precision = DTYPES[value.replace(/^torch\./, '')];
      if (precision === undefined) throw new UsageError(`${from}: no such precision`, 'for example: --precision bf16');
      take('precision', '--precision', precision, from);
    } else if (key === 'peft') {
      take('adapter', '--adapter', value, from);
    } else if (key === 'enable_thinking') {
      if (!/^(true|false)$/i.test(value)) throw new UsageError(`${from}: expected True or False`, 'for example: False');
      const json = JSON.stringify({ enable_thinking: value.toLowerCase() === 'true' });
      take('chatTemplateKwargs', '--chat-template-kwargs', json, from);
    } else if (!IDLE.has(key))
      throw new UsageError(
        `${from}: ${key} is not supported`,
        (Object.hasOwn(INSTEAD, key) ? INSTEAD[key] : undefined) ??
          'leave it out; tilewright run --help lists the flags',
      );
  }
  const device = text(flags, 'device');
  if (device !== undefined) {
    const [, kind, number = '0'] = /^(cpu|cuda)(?::(\d+))?$/.exec(device) ?? [];
    if (kind === undefined || number !== '0')
      throw new UsageError(
        `--device ${device}: expected cpu or cuda`,
        kind === undefined ? '--target says where: cpu or cuda' : `for another GPU: CUDA_VISIBLE_DEVICES=${number}`,
      );
    take('target', '--target', kind, `--device ${device}`);
  }
  if (model === undefined)
    throw new UsageError(
      "missing required argument 'model'",
      typeof flags['applyChatTemplate'] === 'string'
        ? `${flags['applyChatTemplate']} was taken for the name of a template: write the model before the flags`
        : 'for example: tilewright run models/demo --task hellaswag --data examples/everyday.jsonl',
    );
  return { model, flags: changed };
}

const IDLE_NAMES = WITHOUT_EFFECT.map(([flag]) => harnessName(flag));

/** For the help of `run`. */
export const HARNESS_HELP: readonly string[] = [
  'These have no effect, and a note says why:',
  ...[0, 4, 8].map((from) => `  ${IDLE_NAMES.slice(from, from + 4).join(' ')}`),
  'Others stand for flags of ours: --device cpu|cuda for --target, and',
  '--model_args pretrained=DIR,dtype=bfloat16 for the model and --precision.',
];
