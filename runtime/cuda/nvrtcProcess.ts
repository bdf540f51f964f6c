/** A compiler process: loads the NVRTC that argv names and answers each LaneRequest with a LaneReply, in order. */
import { type LaneReply, type LaneRequest, type Nvrtc, openNvrtc } from './nvrtc.js';

const [, , path = ''] = process.argv;
let nvrtc: Nvrtc | undefined;

async function answer({ name, source, options }: LaneRequest): Promise<LaneReply> {
  try {
    nvrtc ??= openNvrtc(path);
    return { compilation: await nvrtc.compile(name, source, options) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

process.on('message', (request: LaneRequest) => {
  void answer(request).then((reply) => process.send?.(reply));
});
// Ctrl-C reaches the whole group; what it means is the parent's to say.
process.on('SIGINT', () => {});
// The parent is gone. A compilation runs in another thread, which an orderly exit would wait for.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
