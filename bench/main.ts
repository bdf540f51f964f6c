/**
 * `npm run bench`: scoring rates on real question trees, each as a share of the arithmetic peak measured in the same
 * run, where the time goes by kernel, and what each sharing mode gains over `none`.
 */
import type { Command } from 'commander';
import { arithmeticOf, chooseIsa, detectMachine } from '../driver/targets/cpuDevice.js';
import { CPU_ISAS, type CpuIsa } from '../ir/plan.js';
import { benchCommand, decimal, oneOf, repeated, runProgram, text, whole } from './command.js';
import { benchData, type BenchData } from './inputs.js';
import { type MeasuredModel, measureModel, peakOf } from './measureModel.js';

async function bench({ threads, isa: wanted, questions, ...options }: CpuBenchOptions): Promise<void> {
  const machine = detectMachine();
  const peaks: string[] = [];
  for (const isa of machine.isas) peaks.push(`${isa} ${((await peakOf(isa, threads)) / 1e9).toFixed(0)} GFLOP/s`);
  console.log(`${machine.cpu.model}, ${threads} threads; register-loop peaks: ${peaks.join(', ')}`);

  const data = await benchData(options.data, options.tokenizer, questions);
  console.log(`${data.questions.length} questions of ${data.name}\n`);
  const measured: MeasuredModel[] = [];
  const done = new Set<string>();
  for (const model of options.model) {
    for (const precision of options.precision) {
      const hasBlocks = model.endsWith('.gguf') && precision === 'auto' && wanted !== 'amx';
      const isa = chooseIsa(machine, precision, wanted, hasBlocks);
      const arithmetic = hasBlocks ? 'int8' : arithmeticOf(isa);
      if (done.has(`${model} ${isa} ${arithmetic}`)) continue;
      done.add(`${model} ${isa} ${arithmetic}`);
      const { seconds, tune: tuneSeconds, batchTokens } = options;
      const result = await measureModel({
        model,
        machine,
        isa,
        precision,
        threads,
        data,
        seconds,
        tuneSeconds,
        batchTokens,
      });
      measured.push(result);
      printMeasured(result);
    }
  }
  const first = measured[0];
  if (first !== undefined) printSharing(first, data);
}

export interface CpuBenchOptions {
  readonly model: readonly string[];
  readonly precision: readonly ('auto' | 'f32')[];
  readonly isa?: CpuIsa;
  readonly threads: number;
  readonly seconds: number;
  readonly questions: number;
  readonly tune: number;
  readonly batchTokens: number;
  readonly data?: string;
  readonly tokenizer?: string;
}

export const cpuCommand = (): Command =>
  benchCommand(
    'bench',
    'Scoring rates on real question trees, each as a share of the arithmetic peak measured in the same run, ' +
      'where the time goes by kernel, and what each sharing mode gains over none.',
  )
    .option(
      '--model <path>',
      'folder of a config.json, or one below bench/models, with random weights; or a GGUF file with its own: auto ' +
        'multiplies its blocks, f32 decodes them; may be repeated',
      repeated(text),
      ['llama-110m', 'llama-1.1b'],
    )
    .option('--precision <name>', 'auto or f32; may be repeated', repeated(oneOf(['auto', 'f32'])), ['auto', 'f32'])
    .option('--isa <name>', `micro-kernels: ${CPU_ISAS.join(', ')} (default: the best this CPU has)`, oneOf(CPU_ISAS))
    .option('--threads <n>', 'threads that compute', whole(1, 1024), 2)
    .option('--seconds <s>', 'time to spend scoring with each model and precision', decimal(0.1, 86_400), 15)
    .option('--questions <n>', 'questions to score: the first of the data set', whole(1, 1_000_000), 400)
    .option('--tune <s>', 'time to tune schedules before; 0 measures the defaults', decimal(0, 86_400), 0)
    .option('--batch-tokens <n>', 'tokens of the largest micro-batch', whole(32, 32_768), 1024)
    .option(
      '--data <file>',
      'HellaSwag as JSON lines (default: the real one if it is there, else the bundled questions)',
    )
    .option('--tokenizer <folder>', 'folder of a tokenizer');

/** Tables of a benchmark for people to read. */

export function printMeasured(m: MeasuredModel): void {
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

export function printSharing(m: MeasuredModel, data: BenchData): void {
  console.log(`sharing on ${m.model} (${m.isa}), ${data.questions.length} questions:`);
  for (const mode of ['none', 'context', 'tree'] as const) {
    const rate = m.sharing[mode].toFixed(1).padStart(8);
    const gain = (m.sharing[mode] / m.sharing.none).toFixed(2);
    console.log(`  ${mode.padEnd(8)} ${rate} questions/s   ${gain}× none`);
  }
}

await runProgram(import.meta.url, cpuCommand, bench);
