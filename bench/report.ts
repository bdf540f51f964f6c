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
  const total = m.kernels.reduce((sum, kernel) => sum + kernel.milliseconds, 0);
  for (const { name, milliseconds, gflops } of m.kernels) {
    const time = milliseconds.toFixed(2).padStart(9);
    const share = ((100 * milliseconds) / total).toFixed(1).padStart(6);
    const rate = gflops > 0 ? ` ${gflops.toFixed(0).padStart(7)} GFLOP/s` : '';
    console.log(`  ${name.padEnd(18)} ${time} ms ${share} %${rate}`);
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
