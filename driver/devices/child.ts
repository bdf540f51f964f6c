/**
 * The process that owns the devices of a replica, and has models on them. If a driver hangs or loses its context, only
 * this process is lost: the parent starts another and continues. Started by fork(); speaks protocol.ts.
 */
import { isCudaError, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { modelName } from '../names.js';
import { Phases } from '../phases.js';
import type { Ui } from '../requests.js';
import { type HostedModel, LocalModels } from './hostedModel.js';
import { type FromChild, type FromModel, packError, type ToChild } from './protocol.js';
import { Siblings } from './siblings.js';
import { PREPARE } from './startProcess.js';

/** If the parent has ended, this is lost; the 'disconnect' handler below ends the process. */
const send = (message: FromChild): void => {
  process.send?.(message, () => undefined);
};

/** A model that is being opened, or is there. */
interface Entry {
  readonly siblings: Siblings | undefined;
  readonly loading: Promise<HostedModel>;
  loaded?: HostedModel;
  /** It was unloaded before its turn to be opened came. */
  isUnwanted: boolean;
}

const models = new Map<number, Entry>();
const local = new LocalModels();
let isClosed = false;

/** The phases of the next model that is opened; the first one's begin with this process. */
let phases = new Phases();
phases.end();

const uiOf = (say: (message: FromModel) => void): Ui => ({
  phase: (name, detail) => say({ kind: 'phase', name, ...defined({ detail }) }),
  step: (fraction, detail) => say({ kind: 'step', fraction, ...defined({ detail }) }),
  run: () => undefined,
  table: () => undefined,
  note: (line) => say({ kind: 'note', line }),
  detail: (line) => say({ kind: 'detail', line }),
  warn: (line) => say({ kind: 'warn', line }),
});

type Open = Extract<ToChild, { readonly kind: 'open' }>;

async function open(message: Open): Promise<void> {
  const { model, siblings: member } = message;
  const say = (word: FromModel): void => send({ ...word, model });
  const entry: Entry = {
    siblings: member && new Siblings(member, (word) => say({ kind: 'sibling', word })),
    loading: Promise.resolve().then(() => load(message, entry, say)),
    isUnwanted: false,
  };
  models.set(model, entry);
  try {
    await entry.loading;
  } catch (error) {
    models.delete(model);
    throw error;
  }
}

async function load(
  { request, compiled }: Open,
  entry: Entry,
  say: (message: FromModel) => void,
): Promise<HostedModel> {
  const own = phases;
  phases = new Phases(false);
  own.begin('open');
  const { loadExecutor, openSent } = await loader;
  const { checkpoint, base, adapter, model, rebuild, packed } = openSent(request, compiled);
  const { threads, devices, replica, first } = request;
  const { siblings } = entry;
  const options = { threads, devices, replicas: replica.count, rebuild, packed, phases: own };
  const hosted = await local.open({
    name: modelName(request.model),
    compiled: model,
    ...{ checkpoint, base },
    ...defined({ adapter }),
    load: (besideBytes) => {
      if (entry.isUnwanted) throw new Error('it was unloaded before it was opened');
      return loadExecutor(checkpoint, model, { ...options, besideBytes, ...defined({ first, siblings }) }, uiOf(say));
    },
  });
  own.end();
  entry.loaded = hosted;
  say({
    kind: 'ready',
    phases: own.spans,
    capacity: hosted.capacity,
    inFlight: hosted.inFlight,
    stateful: hosted.stateful,
    ...defined({ pieces: hosted.pieces, tokens: hosted.tokens, adapters: hosted.adapters }),
  });
  return hosted;
}

/** Releases a model, once it has answered what it was asked. One that is being opened is released when it is there. */
async function unload(model: number): Promise<void> {
  const entry = models.get(model);
  if (entry === undefined) return;
  entry.isUnwanted = true;
  const hosted = entry.loaded ?? (await entry.loading.catch(() => undefined));
  await hosted?.close();
  models.delete(model);
}

/** The context is lost after a CUDA error, or after an error that it caused. */
const isLost = (error: unknown): boolean =>
  (isCudaError(error) && error.isContextDead) ||
  (error instanceof Error && error.cause !== undefined && isLost(error.cause));

async function answer(message: ToChild): Promise<void> {
  switch (message.kind) {
    case 'open':
      return open(message);
    case 'sibling':
      return models.get(message.model)?.siblings?.hear(message.from, message.word);
    case 'unload':
      await unload(message.model);
      return send({ kind: 'unloaded', model: message.model });
    case 'close':
      await Promise.all([...models.keys()].map(unload));
      isClosed = true;
      process.disconnect();
      return;
    case 'ask': {
      const { model, id, asked } = message;
      const hosted = models.get(model)?.loaded;
      if (hosted === undefined) throw new Error('asked before the model was loaded');
      return send({ kind: 'answer', model, id, of: asked.kind, answer: await hosted.answer(asked) });
    }
    default:
      return message satisfies never;
  }
}

/** The end of this process, which loses all models. */
function endLost(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  process.send?.({ kind: 'lost', message } satisfies FromChild, () => process.exit(3));
}

/** What a message led to. */
function report(message: ToChild, error: unknown): void {
  if (isLost(error)) return endLost(error);
  switch (message.kind) {
    case 'open':
      return send({ kind: 'unopened', model: message.model, error: packError(error) });
    case 'ask':
      return send({ kind: 'failed', model: message.model, id: message.id, error: packError(error) });
    default:
      // What was to be released may be held still; the end of the process frees it.
      return endLost(error);
  }
}

// It was started before anybody knew what it will load: the device's context is made meanwhile.
if (process.argv[2] === PREPARE) loadCudaAddon().prepare(readSettings().cudaDriver, Number(process.argv[3]));
/** What opens a model, loaded while the device's context is made and the parent plans. */
const loader = import('./loadReplica.js');
// A failure is reported to the first request for a model.
loader.catch(() => undefined);
process.on('message', (message: ToChild) => {
  answer(message).catch((error: unknown) => report(message, error));
});
// Ctrl-C reaches the whole process group, and so does a batch system's SIGTERM. The parent decides what to do.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
// If the parent dies, nobody ends this process: exiting waits for threads, and one of them
// may be in a driver that hangs.
process.on('disconnect', () => {
  if (!isClosed) process.kill(process.pid, 'SIGKILL');
  process.exit(0);
});
