/**
 * The process that owns the devices of a replica, and has models on them. If a driver hangs or loses its context, only
 * this process is lost: the parent starts another and continues. Started by fork(); speaks protocol.ts.
 */
import { isCudaError, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { Phases } from '../phases.js';
import type { Ui } from '../requests.js';
import { HostedModel } from './hostedModel.js';
import { type FromChild, type FromModel, packError, type ToChild } from './protocol.js';
import { Siblings } from './siblings.js';
import { PREPARE } from './startProcess.js';
import { Turns } from './turns.js';

/** If the parent has ended, this is lost; the 'disconnect' handler below ends the process. */
const send = (message: FromChild): void => {
  process.send?.(message, () => undefined);
};

/** A model that is being opened, or is there. */
interface Entry {
  readonly siblings: Siblings | undefined;
  readonly loading: Promise<HostedModel | undefined>;
  loaded?: HostedModel;
  /** It was unloaded before its turn to be opened came. */
  isUnwanted: boolean;
}

const models = new Map<number, Entry>();
const turns = new Turns();
/** Models are opened one after another: what fits beside a model is known when it is there. */
let opening: Promise<unknown> = Promise.resolve();
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

function open(message: Open): Promise<void> {
  const say = (word: FromModel): void => send({ ...word, model: message.model });
  const siblings = message.siblings && new Siblings(message.siblings, (word) => say({ kind: 'sibling', word }));
  const loading = opening.then(() => (entry.isUnwanted ? undefined : load(message, siblings, say)));
  const entry: Entry = { siblings, loading, isUnwanted: false };
  models.set(message.model, entry);
  opening = loading.then(
    (loaded) => {
      if (loaded !== undefined) entry.loaded = loaded;
    },
    () => undefined,
  );
  return loading.then(
    () => undefined,
    (error: unknown) => {
      models.delete(message.model);
      throw error;
    },
  );
}

async function load(
  { request, compiled }: Open,
  siblings: Siblings | undefined,
  say: (message: FromModel) => void,
): Promise<HostedModel> {
  const own = phases;
  phases = new Phases(false);
  own.begin('open');
  const { loadExecutor, openSent } = await loader;
  const { checkpoint, model, rebuild, packed } = openSent(request, compiled);
  const { threads, devices, replica, first } = request;
  const options = {
    threads,
    devices,
    replicas: replica.count,
    rebuild,
    packed,
    phases: own,
    ...defined({ first, siblings }),
  };
  const executor = new HostedModel(await loadExecutor(checkpoint, model, options, uiOf(say)), model, turns);
  own.end();
  say({
    kind: 'ready',
    phases: own.spans,
    capacity: executor.capacity,
    inFlight: executor.inFlight,
    stateful: executor.stateful,
  });
  return executor;
}

/** Releases a model, once it has answered what it was asked. One that is being opened is released when it is there. */
async function unload(model: number): Promise<void> {
  const entry = models.get(model);
  if (entry === undefined) return;
  entry.isUnwanted = true;
  const executor = entry.loaded ?? (await entry.loading.catch(() => undefined));
  await executor?.close();
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
      const executor = models.get(model)?.loaded;
      if (executor === undefined) throw new Error('asked before the model was loaded');
      return send({ kind: 'answer', model, id, of: asked.kind, answer: await executor.answer(asked) });
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
