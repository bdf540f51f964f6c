/** The thread that reads and packs adapters for a model (packApart.ts): one after another. workerData: PackSetting. */
import { parentPort, workerData } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { openModel } from '../functions.js';
import { openRef, requireRiding } from './open.js';
import type { FromPacker, PackSetting, ToPacker } from './packJob.js';
import { packTogether } from './writeAdapter.js';

const port = parentPort;
if (port === null) throw new Error('driver/adapters/packThread runs as a worker thread only');
const { base, weights } = workerData as PackSetting;

let checkpoint: Checkpoint | undefined;
let last: Promise<unknown> = Promise.resolve();
let goOn: () => void = () => undefined;

const say = (message: FromPacker, transfer: readonly ArrayBuffer[] = []): void => port.postMessage(message, transfer);

async function pack({ id, named }: Extract<ToPacker, { readonly kind: 'pack' }>): Promise<void> {
  checkpoint ??= openModel(base.path, base.init, base.draftModel);
  const adapter = openRef(named, checkpoint);
  requireRiding(adapter);
  await packTogether(adapter, { plan: { weights }, tensors: checkpoint.tensors }, async (packed) => {
    const taken = new Promise<void>((resolve) => (goOn = resolve));
    say(
      { id, kind: 'packed', packed },
      packed.map(({ bytes }) => bytes.buffer as ArrayBuffer),
    );
    await taken;
  });
}

port.on('message', (message: ToPacker) => {
  if (message.kind === 'more') return goOn();
  const { id } = message;
  last = last.then(() =>
    pack(message).then(
      () => say({ id, kind: 'done' }),
      (error: unknown) => {
        const [isUser, hint] = error instanceof UserError ? [true, error.hint] : [false, undefined];
        say({ id, kind: 'failed', error: error instanceof Error ? error.message : String(error), hint, isUser });
      },
    ),
  );
});
