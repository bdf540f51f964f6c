/** What a finished run says of itself: the files that it wrote, and how it can be computed again. */
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { isRecord, quote } from '../../system/json.js';
import { findRun, type Block } from '../compare/findRuns.js';
import { parseModelArgs, RECORD, type RunRecord } from '../runRecord.js';

/** A run whose results are read. Nothing of them is believed. */
export interface FinishedRun {
  /** Its results_*.json. */
  readonly path: string;
  /** The content of that file. */
  readonly content: Block;
  readonly record: RunRecord;
  /** What the record is from: an older version wrote none, and some of what was asked is not known. */
  readonly isRecordGuessed: boolean;
  /** Files of samples by task; undefined where none was written. */
  readonly samples: ReadonlyMap<string, string | undefined>;
}

const OURS = 'Give the folder that a run of tilewright had with --out, or its results_*.json';

const block = (value: unknown): Block => (isRecord(value) ? value : {});
export const own = (of: Block, name: string): unknown => (Object.hasOwn(of, name) ? of[name] : undefined);

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);

/** A folder of results, or a results_*.json. Throws UserError. */
export function readFinishedRun(path: string): FinishedRun {
  const { file } = findRun(path);
  if (!file.endsWith('.json')) throw new UserError(`${path}: samples alone do not say how they were made`, OURS);
  const { content, tasks, unfinished } = findRun(file);
  if (own(content, 'model_source') !== 'tilewright')
    throw new UserError(
      `${file}: another program wrote it, and only results of tilewright can be computed again`,
      OURS,
    );
  if (own(content, 'shard') !== undefined)
    throw new UserError(
      `${file}: the results of one shard`,
      'join all of them first: tilewright merge DIR --out results, then tilewright verify results',
    );
  if (unfinished.length > 0)
    throw new UserError(
      `${file}: the run has not finished: it lacks ${unfinished.slice(0, 4).join(', ')}`,
      'run it to its end: the same command with --resume',
    );
  const given = own(block(own(content, 'provenance')), 'record');
  return {
    ...{ path: file, content },
    record: given === undefined ? guessedRecord(file, content, [...tasks.keys()]) : readRecord(file, given),
    isRecordGuessed: given === undefined,
    samples: new Map([...tasks].map(([name, { samplesPath }]) => [name, samplesPath])),
  };
}

function readRecord(file: string, given: unknown): RunRecord {
  const parsed = RECORD.safeParse(given);
  if (parsed.success && (parsed.data.file === undefined) !== (parsed.data.tasks === undefined)) return parsed.data;
  const [issue] = parsed.error?.issues ?? [];
  const what = issue === undefined ? 'neither a file nor tasks' : `${issue.path.join('.')}: ${issue.message}`;
  throw new UserError(`${file}: provenance.record is not what a run writes (${quote(what, 200)})`, OURS);
}

/** Of results without a record: what other fields say. */
function guessedRecord(file: string, content: Block, tasks: readonly string[]): RunRecord {
  const [config, provenance] = [block(own(content, 'config')), block(own(content, 'provenance'))];
  const { model, precision } = parseModelArgs(textOf(config['model_args']) ?? '') ?? { model: '', precision: '' };
  const cache = /, (FP8|int8) cache$/.exec(textOf(config['arithmetic']) ?? '')?.[1]?.toLowerCase();
  const limit = config['limit'];
  const isOfFile = own(content, 'emulates') === undefined;
  const record: unknown = {
    ...{ format: 1, model, precision },
    ...defined({ kv_cache: cache === undefined ? undefined : cache }),
    device: { target: config['device'], isa: config['isa'], name: '' },
    ...(typeof limit === 'number' && !isOfFile ? { limit } : {}),
    ...(isOfFile
      ? { file: { task: tasks[0], data: provenance['dataset_path'], docs: provenance['docs'] } }
      : { tasks: guessedTasks(content, config, provenance, tasks) }),
  };
  const parsed = RECORD.safeParse(record);
  if (parsed.success) return parsed.data;
  throw new UserError(`${file}: does not say how the run was made (${parsed.error.issues[0]?.path.join('.')})`, OURS);
}

function guessedTasks(content: Block, config: Block, provenance: Block, tasks: readonly string[]): unknown {
  const members = block(own(content, 'group_subtasks'));
  const inGroups = new Set(Object.values(members).flatMap((each) => (Array.isArray(each) ? (each as unknown[]) : [])));
  const names = [...Object.keys(members), ...tasks].filter((name) => !inGroups.has(name));
  const shots = new Set(Object.values(block(own(content, 'configs'))).map((each) => block(each)['num_fewshot']));
  const [only] = shots;
  const root = textOf(provenance['dataset_path']) ?? '';
  const instruction = textOf(own(content, 'system_instruction'));
  const isChat = typeof own(content, 'chat_template') === 'string';
  const { random_seed: python, numpy_seed: numpy, torch_seed: torch, fewshot_seed: fewshot } = config;
  return {
    names: [...new Set(names)],
    ...(root === '' ? {} : { data_root: root }),
    ...(shots.size === 1 && typeof only === 'number' ? { num_fewshot: only } : {}),
    ...defined({ system_instruction: instruction === undefined ? undefined : instruction }),
    ...(isChat ? { chat_template: true, fewshot_as_multiturn: own(content, 'fewshot_as_multiturn') } : {}),
    seeds: { python, numpy: numpy ?? null, torch, fewshot },
  };
}
