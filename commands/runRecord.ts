/** A run's record of itself: written from its request, and read back as the request that computes it again. */
import { cpuName } from '../driver/devices/chooseTarget.js';
import { parseInit } from '../driver/names.js';
import { KV_CACHES, PRECISIONS } from '../driver/precision.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { UserError } from '../errors.js';
import { RECORD_FORMAT, type RunRecord } from '../evaluate/runRecord.js';
import { parseDocs, printDocs } from '../evaluate/selection.js';
import { MASKS } from '../models/model/model.js';
import { parseJsonValue } from '../python/literal.js';
import { compactJson } from '../python/show.js';
import { type Dict, isDict } from '../python/value.js';
import { cudaAvailable } from '../runtime/cuda/addon.js';
import { defined } from '../system/defined.js';
import { quote } from '../system/json.js';
import type { LoadedModel } from './loadModel.js';
import type { RunRequest, TasksRequest } from './runRequest.js';
import { scoringId } from './scoreSet.js';

/** `AMD EPYC 9654`, `NVIDIA H100 80GB HBM3`; empty where it is not known. */
export function deviceName(isHost: boolean): string {
  if (isHost) return cpuName(detectMachine().cpu.model);
  const available = cudaAvailable();
  return (available.ok ? available.devices[0]?.name : undefined) ?? '';
}

type Asked = RunRequest | TasksRequest;

export function recordOf(request: Asked, opened: Pick<LoadedModel, 'model' | 'id' | 'reference'>): RunRecord {
  const { model, checkpoint, init, precision, kvCache, mask, limit, adapter } = request;
  const hash = opened.reference.adapter?.hash;
  const { target, isa } = opened.model;
  return {
    format: RECORD_FORMAT,
    model,
    ...defined({ checkpoint }),
    ...(init.kind === 'random' ? { init: `random:${init.seed}` } : {}),
    precision,
    ...defined({ kv_cache: kvCache, mask }),
    ...(adapter === undefined || hash === undefined ? {} : { adapter: { ...adapter, hash } }),
    artifact: scoringId(opened),
    device: { target: target.name, isa, name: deviceName(target.devices.isHost) },
    ...defined({ limit }),
    ...('tasks' in request ? { tasks: tasksOf(request) } : { file: fileOf(request) }),
  };
}

const fileOf = ({ task, data, docs }: RunRequest): NonNullable<RunRecord['file']> => ({
  ...{ task, data },
  ...defined({ docs: docs && printDocs(docs) }),
});

const json = (value: Dict | undefined): string | undefined => value && compactJson(value);

const tasksOf = (of: TasksRequest): NonNullable<RunRecord['tasks']> => ({
  names: [...of.tasks],
  ...defined({
    include_path: of.includePaths.length === 0 ? undefined : [...of.includePaths],
    data_root: of.dataRoot,
    num_fewshot: of.shots,
    system_instruction: of.systemInstruction,
    chat_template: of.appliesChatTemplate === true ? (of.templateName ?? (true as const)) : undefined,
    chat_template_kwargs: json(of.templateVariables),
    fewshot_as_multiturn: of.isMultiturn,
    samples:
      of.samples && Object.fromEntries([...of.samples].map(([name, all]) => [name, [...all].sort((a, b) => a - b)])),
    seeds: of.seeds && { ...of.seeds },
    gen_kwargs: json(of.generation),
    predict_only: of.predictsOnly === true ? (true as const) : undefined,
  }),
});

/** One of the known words. Throws UserError. */
function known<T extends string>(field: string, given: string, words: readonly T[]): T {
  const found = words.find((word) => word === given);
  if (found !== undefined) return found;
  throw new UserError(
    `the record of the run: ${field} ${quote(given)}: this version knows ${words.join(', ')}`,
    'use the version of tilewright that wrote the results',
  );
}

function dictOf(field: string, written: string | undefined): Dict | undefined {
  if (written === undefined) return undefined;
  try {
    const value = parseJsonValue(written);
    if (isDict(value)) return value;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new UserError(
    `the record of the run: ${field} is no JSON object`,
    'give the results as the run wrote them: provenance.record in results_*.json was edited',
  );
}

/** A request but for how many threads compute it. */
type Recorded<R, K> = Omit<R, 'threads'> & { readonly kind: K };

/** What a record asks, where nothing has moved. Throws UserError. */
export function requestOf(record: RunRecord): Recorded<RunRequest, 'file'> | Recorded<TasksRequest, 'tasks'> {
  const { model, checkpoint, init, precision, kv_cache: cache, mask, adapter, limit, file, tasks } = record;
  const shared = {
    model,
    init: init === undefined ? ({ kind: 'checkpoint' } as const) : parseInit(init),
    precision: known('precision', precision, PRECISIONS),
    sharing: 'tree' as const,
    resume: false,
    ...defined({ checkpoint, limit }),
    ...defined({ kvCache: cache === undefined ? undefined : known('kv_cache', cache, KV_CACHES) }),
    ...defined({ mask: mask === undefined ? undefined : known('mask', mask, MASKS) }),
    ...defined({ adapter: adapter && { name: adapter.name, path: adapter.path } }),
  };
  if (tasks === undefined) {
    const { task = '', data = '', docs } = file ?? {};
    return {
      kind: 'file',
      ...shared,
      task,
      data,
      ...defined({ docs: docs === undefined ? undefined : parseDocs(docs) }),
    };
  }
  const template = tasks.chat_template;
  return {
    kind: 'tasks',
    ...shared,
    tasks: tasks.names,
    includePaths: tasks.include_path ?? [],
    ...defined({
      dataRoot: tasks.data_root,
      shots: tasks.num_fewshot,
      systemInstruction: tasks.system_instruction,
      appliesChatTemplate: template === undefined ? undefined : true,
      templateName: typeof template === 'string' ? template : undefined,
      templateVariables: dictOf('chat_template_kwargs', tasks.chat_template_kwargs),
      isMultiturn: tasks.fewshot_as_multiturn,
      samples: tasks.samples && new Map(Object.entries(tasks.samples).map(([name, all]) => [name, new Set(all)])),
      seeds: tasks.seeds,
      generation: dictOf('gen_kwargs', tasks.gen_kwargs),
      predictsOnly: tasks.predict_only,
    }),
  };
}
