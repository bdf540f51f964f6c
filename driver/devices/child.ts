/**
 * The process that owns the devices of a replica. If a driver hangs or loses its context, only this process is lost:
 * the parent starts another and continues. Started by fork(); speaks protocol.ts.
 */
import { isCudaError, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { type DeviceExecutor, inFlightOf } from '../executor.js';
import { Phases } from '../phases.js';
import type { Ui } from '../requests.js';
import { PREPARE } from './deviceProcess.js';
import { type DeviceRequest, type FromChild, packError, type ToChild } from './protocol.js';
import { type Membership, Siblings } from './siblings.js';

/** If the parent has ended, this is lost; the 'disconnect' handler below ends the process. */
const send = (message: FromChild): void => {
  process.send?.(message, () => undefined);
};

const ui: Ui = {
  phase: (name, detail) => send({ kind: 'phase', name, ...defined({ detail }) }),
  step: (fraction, detail) => send({ kind: 'step', fraction, ...defined({ detail }) }),
  run: () => undefined,
  table: () => undefined,
  note: (line) => send({ kind: 'note', line }),
  detail: (line) => send({ kind: 'detail', line }),
  warn: (line) => send({ kind: 'warn', line }),
};

const phases = new Phases();
phases.end();
let executor: DeviceExecutor | undefined;
let siblings: Siblings | undefined;
let isClosed = false;

/** What opens a model, loaded while the device's context is made and the parent plans. */
const opening = async () => ({
  ...(await import('./loadReplica.js')),
  ...(await import('./loadReplica.js')),
});

async function open(request: DeviceRequest, bytes: Uint8Array, member: Membership | undefined): Promise<void> {
  if (member !== undefined) siblings = new Siblings(member, (word) => send({ kind: 'sibling', word }));
  phases.begin('open');
  const { loadExecutor, openSent } = await opened;
  const { checkpoint, model, rebuild, packed } = openSent(request, bytes);
  const { threads, devices, replica, first } = request;
  const options = {
    threads,
    devices,
    replicas: replica.count,
    rebuild,
    packed,
    phases,
    ...defined({ first, siblings }),
  };
  executor = await loadExecutor(checkpoint, model, options, ui);
  phases.end();
  send({
    kind: 'ready',
    phases: phases.spans,
    capacity: executor.capacity,
    inFlight: inFlightOf(executor),
    stateful: model.plan.functions.flatMap(({ interface: { name, takes } }) => (takes.length > 0 ? [name] : [])),
  });
}

/** The context is lost after a CUDA error, or after an error that it caused. */
const isLost = (error: unknown): boolean =>
  (isCudaError(error) && error.isContextDead) ||
  (error instanceof Error && error.cause !== undefined && isLost(error.cause));

async function answer(message: ToChild): Promise<void> {
  switch (message.kind) {
    case 'open':
      return open(message.request, message.model, message.siblings);
    case 'sibling':
      return siblings?.hear(message.from, message.word);
    case 'close': {
      await executor?.close();
      isClosed = true;
      process.disconnect();
      return;
    }
    case 'call':
    case 'profile': {
      if (executor === undefined) throw new Error('asked before the model was loaded');
      const { id, function: name, inputs } = message;
      if (message.kind === 'call') send({ kind: 'result', id, result: await executor.call(name, inputs) });
      else
        send({
          kind: 'profiled',
          id,
          launches: (await executor.profile(name, inputs)).launches.map(({ path, nanoseconds }) => ({
            path,
            nanoseconds,
          })),
        });
      return;
    }
    default:
      return message satisfies never;
  }
}

// It was started before anybody knew what it will load: the device's context is made meanwhile.
if (process.argv[2] === PREPARE) loadCudaAddon().prepare(readSettings().cudaDriver, Number(process.argv[3]));
const opened = opening();
// A failure is reported to the first request for a model.
opened.catch(() => undefined);
process.on('message', (message: ToChild) => {
  answer(message).catch((error: unknown) => {
    if (isLost(error)) {
      process.send?.(
        { kind: 'lost', message: error instanceof Error ? error.message : String(error) } satisfies FromChild,
        () => process.exit(3),
      );
      return;
    }
    send({ kind: 'failed', ...('id' in message ? { id: message.id } : {}), error: packError(error) });
  });
});
// Ctrl-C reaches the whole process group, and so does a batch system's SIGTERM. The parent decides what to do.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
// If the parent dies, nobody ends this process: exiting waits for threads, and one of them
// may be in a driver that hangs.
process.on('disconnect', () => {
  if (!isClosed) process.kill(process.pid, 'SIGKILL');
  process.exit(0);
});
