/** A compiler process: loads the NVRTC that argv names and answers each LaneRequest with a LaneReply, in order. */
import { openNvrtc, type Nvrtc } from './nvrtc.js';
import type { LaneReply, LaneRequest } from './nvrtcLanes.js';

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
// The parent has what it wanted, or is gone.
process.on('disconnect', () => process.exit());
