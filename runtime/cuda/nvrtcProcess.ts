/** A compiler process: loads the NVRTC that argv names and answers each LaneMessage with a LaneReply, in order. */
import type { Header } from '../../ir/unit.js';
import { type LaneMessage, type LaneReply, type Nvrtc, openNvrtc } from './nvrtc.js';

const [, , path = ''] = process.argv;
let nvrtc: Nvrtc | undefined;
const known = new Map<string, Header>();

async function answer({ headers, sent, ...unit }: LaneMessage): Promise<LaneReply> {
  try {
    for (const header of sent) known.set(header.name, header);
    nvrtc ??= openNvrtc(path);
    return { compilation: await nvrtc.compile({ ...unit, headers: headers.map((name) => known.get(name)!) }) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

process.on('message', (message: LaneMessage) => {
  void answer(message).then((reply) => process.send?.(reply));
});
// Ctrl-C reaches the whole group; what it means is the parent's to say.
process.on('SIGINT', () => {});
// The parent is gone. A compilation runs in another thread, which an orderly exit would wait for.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
