/** Tables of a benchmark for people to read. */
import type { BenchData } from './data.js';
import type { Measured } from './measureModel.js';

export function printMeasured(m: Measured): void {
  console.log(
    `${m.model}, ${m.isa}: ${m.tokensPerSecond.toFixed(0)} tokens/s, ` +
      `${m.questionsPerSecond.toFixed(1)} questions/s, ` +
      `${(100 * m.shareOfPeak).toFixed(1)} % of ${(m.peakFlops / 1e9).toFixed(0)} GFLOP/s`,
  );
  console.log(
    `  compile ${m.compileSeconds.toFixed(2)} s, ` +
      `kernels ${m.kernelsCompileSeconds.toFixed(2)} s, weights ${m.loadSeconds.toFixed(2)} s`,
  );
  const { kernels, peakFlops, share } = m.inTurn;
  const total = kernels.reduce((sum, kernel) => sum + kernel.milliseconds, 0);
  console.log(
    `  in turn with the register loop, each at its fastest: ` +
      `${(100 * share).toFixed(1)} % of ${(peakFlops / 1e9).toFixed(0)} GFLOP/s`,
  );
  for (const { name, milliseconds, gflops, share: ofPeak } of kernels) {
    const time = milliseconds.toFixed(2).padStart(9);
    const part = ((100 * milliseconds) / total).toFixed(1).padStart(6);
    const rate =
      gflops > 0 ? ` ${gflops.toFixed(0).padStart(7)} GFLOP/s ${(100 * ofPeak).toFixed(1).padStart(5)} % of peak` : '';
    console.log(`  ${name.padEnd(18)} ${time} ms ${part} %${rate}`);
  }
  console.log('');
}

export function printSharing(m: Measured, data: BenchData): void {
  console.log(`sharing on ${m.model} (${m.isa}), ${data.questions.length} questions:`);
  for (const mode of ['none', 'context', 'tree'] as const) {
    const rate = m.sharing[mode].toFixed(1).padStart(8);
    const gain = (m.sharing[mode] / m.sharing.none).toFixed(2);
    console.log(`  ${mode.padEnd(8)} ${rate} questions/s   ${gain}× none`);
  }
}
