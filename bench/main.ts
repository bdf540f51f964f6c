/**
 * `npm run bench`: scoring rates on real question trees, each as a share of the arithmetic peak measured in the same
 * run, where the time goes by kernel, and what each sharing mode gains over `none`. For options see options.ts.
 */
import { arithmeticOf, chooseIsa, detectMachine } from '../driver/targets/cpuDevice.js';
import { benchData } from './data.js';
import { type Measured, measureModel, peakOf } from './measureModel.js';
import { type BenchOptions, parseBenchOptions, USAGE } from './options.js';
import { runProgram } from './program.js';
import { printMeasured, printSharing } from './report.js';

async function bench({ models, precisions, threads, isa: wanted, questions, ...options }: BenchOptions): Promise<void> {
  const machine = detectMachine();
  const peaks: string[] = [];
  for (const isa of machine.isas) peaks.push(`${isa} ${((await peakOf(isa, threads)) / 1e9).toFixed(0)} GFLOP/s`);
  console.log(`${machine.cpu.model}, ${threads} threads; register-loop peaks: ${peaks.join(', ')}`);

  const data = await benchData(options.data, options.tokenizer, questions);
  console.log(`${data.questions.length} questions of ${data.name}\n`);
  const measured: Measured[] = [];
  const done = new Set<string>();
  for (const model of models) {
    for (const precision of precisions) {
      const hasBlocks = model.endsWith('.gguf') && precision === 'auto' && wanted !== 'amx';
      const isa = chooseIsa(machine, precision, wanted, hasBlocks);
      const arithmetic = hasBlocks ? 'int8' : arithmeticOf(isa);
      if (done.has(`${model} ${isa} ${arithmetic}`)) continue;
      done.add(`${model} ${isa} ${arithmetic}`);
      const { seconds, tuneSeconds, batchTokens } = options;
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

await runProgram(USAGE, parseBenchOptions, bench);
