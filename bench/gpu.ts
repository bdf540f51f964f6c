/**
 * `npm run bench:gpu`: compares a layer's kernels on this machine's GPU with cuBLASLt, each ratio within one run. For
 * options see gpuOptions.ts. In a bundle this is `bench-gpu.sh`.
 */
import { isDeviceHung } from '../autotune/cuda/timing.js';
import { writeAtomically } from '../system/write.js';
import { type GpuLab, openLab } from './gpuLab.js';
import { openBenchModel } from './gpuModel.js';
import { type GpuOptions, parseGpuOptions, USAGE } from './gpuOptions.js';
import { measureReadRate } from './gpuReadRate.js';
import { type GpuResults, renderGpuTable } from './gpuResults.js';
import { runGpuBench } from './gpuRun.js';
import { runProgram } from './program.js';

const READ_WARM_SECONDS = 0.5;

const note = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

async function main(options: GpuOptions): Promise<void> {
  let lab: GpuLab | undefined;
  try {
    lab = await openLab();
    const readBytesPerSecond = await measureReadRate(lab, options.rounds, READ_WARM_SECONDS);
    const { model: path, tokens, mask, precision } = options;
    const all: GpuResults[] = [];
    for (const finishing of options.finishing) {
      const model = openBenchModel(path, lab.facts, Math.max(...tokens), mask, precision, finishing);
      const results = { ...(await runGpuBench(lab, model, options, note)), readBytesPerSecond, finishing };
      all.push(results);
      for (const line of renderGpuTable(results)) console.log(line);
    }
    if (options.json !== undefined)
      writeAtomically(options.json, [`${JSON.stringify(all.length === 1 ? all[0] : all, undefined, 1)}\n`]);
    if (all.some(({ kernels }) => kernels.some(({ failure }) => failure !== undefined))) process.exitCode = 1;
  } catch (error) {
    if (isDeviceHung(error)) {
      // A lost device releases nothing.
      note(
        `error: ${error instanceof Error ? error.message : String(error)}\n` +
          'hint: leave the kernel out that was measured last: --kernel NAME',
      );
      process.exit(1);
    }
    throw error;
  } finally {
    lab?.release();
  }
}

await runProgram(USAGE, parseGpuOptions, main);
