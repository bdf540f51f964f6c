/** `--dump DIR`: every stage of a compilation as a numbered text file. */
import { printKernels } from '../../ir/kernelPrinter.js';
import { printGraph } from '../../ir/graph/printer.js';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf, diskProblem } from '../../system/errno.js';
import { makeFolder } from '../../system/write.js';
import type { CompiledModel } from './compile.js';
import type { Stage } from '../../passes/runPasses.js';
import { printPlan } from '../planJson.js';

/** A graph, or kernels, as text. */
export const stageText = (stage: Stage): string =>
  stage.level === 'graph' ? printGraph(stage.graph) : printKernels(stage.module);

export class Dump {
  private readonly dir: string;
  private count = 0;

  constructor(dir: string) {
    this.dir = dir;
    this.guarded(dir, () => makeFolder(dir));
  }

  private guarded(path: string, write: () => void): void {
    try {
      write();
    } catch (error) {
      if (codeOf(error) === '') throw error;
      throw diskProblem(path, error, 'free some space, or give --dump a folder that can be written');
    }
  }

  /** `03_canonicalizeMask.txt`: a graph, or kernels. */
  stage(stage: Stage): void {
    this.write(`${stage.name}.txt`, stageText(stage));
  }

  plan(model: CompiledModel): void {
    const { plan } = model;
    const kernels = plan.functions.flatMap((fn) => fn.kernels);
    this.write('kernels.jsonl', kernels.map((kernel) => `${JSON.stringify(kernel)}\n`).join(''));
    this.write('plan.json', printPlan(plan));
    for (const source of model.target.sources(model.plan)) this.write(source.name, source.text);
  }

  private write(name: string, text: string): void {
    const path = join(this.dir, `${String(this.count++).padStart(2, '0')}_${name}`);
    this.guarded(path, () => writeFileSync(path, text));
  }
}
