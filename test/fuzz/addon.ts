/** The addon's bindings with random arguments, in a child process: a crash there is a finding. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Random } from './mutate.js';

const SCRIPT = join(process.cwd(), 'test/fuzz/addonCalls.mjs');
const ADDON = join(process.cwd(), 'build/Release/tilewright.node');
const CALLS = 2000;

async function round(random: Random): Promise<void> {
  const seed = String(Math.floor(random() * 2 ** 32));
  const args = [SCRIPT, ADDON, seed, String(CALLS)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let admitted = '';
  child.stdout.on('data', (bytes: Buffer) => (admitted += bytes.toString()));
  const [status, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${signal ?? `status ${status}`}`);
  // If all random arguments were refused early, nothing would be tested.
  if (Number(admitted) < CALLS / 50) throw new Error(`only ${admitted} of ${CALLS} calls were admitted`);
}

export const addon = { about: "the addon's bindings: memory, pack, programs", rounds: 2, round };
