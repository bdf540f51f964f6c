/**
 * `npm run bench`: scoring rates on real question trees, each as a share of the arithmetic peak measured in the same
 * run, where the time goes by kernel, and what each sharing mode gains over `none`.
 *
 *     npm run bench -- [--model llama-1.1b|llama-110m|PATH]… [--precision auto|f32]… [--threads 2] [--seconds 20]
 *                      [--questions 400] [--tune 0] [--data FILE] [--tokenizer DIR]
 */
import { parseArgs } from 'node:util';
import { detectMachine, chooseIsa } from '../driver/machine.js';
import { benchData } from './data.js';
import { measureModel, peakOf, type Measured } from './measureModel.js';
import { printMeasured, printSharing } from './report.js';

const { values } = parseArgs({
  options: {
    model: { type: 'string', multiple: true, default: ['llama-110m', 'llama-1.1b'] },
    precision: { type: 'string', multiple: true, default: ['auto', 'f32'] },
    threads: { type: 'string', default: '2' },
    seconds: { type: 'string', default: '15' },
    questions: { type: 'string', default: '400' },
    tune: { type: 'string', default: '0' },
    data: { type: 'string' },
    tokenizer: { type: 'string' },
    'max-tokens': { type: 'string', default: '1024' },
  },
});

const machine = detectMachine();
const threads = Number(values.threads);
const peaks: string[] = [];
for (const isa of machine.isas) peaks.push(`${isa} ${((await peakOf(isa, threads)) / 1e9).toFixed(0)} GFLOP/s`);
console.log(`${machine.cpu.model}, ${threads} threads; register-loop peaks: ${peaks.join(', ')}`);

const data = await benchData(values.data, values.tokenizer, Number(values.questions));
console.log(`${data.questions.length} questions of ${data.name}\n`);
const measured: Measured[] = [];
const done = new Set<string>();
for (const model of values.model) {
  for (const precision of values.precision) {
    if (precision !== 'auto' && precision !== 'f32') throw new Error(`--precision ${precision}: expected auto or f32`);
    const isa = chooseIsa(machine, precision);
    if (done.has(`${model} ${isa}`)) continue;
    done.add(`${model} ${isa}`);
    const result = await measureModel({
      model,
      machine,
      isa,
      threads,
      data,
      seconds: Number(values.seconds),
      tuneSeconds: Number(values.tune),
      maxTokens: Number(values['max-tokens']),
    });
    measured.push(result);
    printMeasured(result);
  }
}
const first = measured[0];
if (first !== undefined) printSharing(first, data);
