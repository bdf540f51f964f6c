/** One plan, measured: seconds of its parts. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Scheduling } from '../codegen/scheduling.js';
import { kernelSignature } from '../codegen/signature.js';
import type { PlanOptions } from '../driver/artifact/planCache.js';
import { compileModel } from '../driver/compile/compile.js';
import { openModel, storedFormats } from '../driver/functions.js';
import { checkPlan, legalityOf } from '../driver/plan.js';
import type { Precision } from '../driver/precision.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { type CompiledModel, targetOf } from '../driver/targets/index.js';
import type { Kernel } from '../ir/kernel.js';
import { linkFunction } from '../ir/plan.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { Observer } from '../passes/runPasses.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { parseJson } from '../system/json.js';
import { isProgram } from './command.js';

/** What to plan. */
export interface PlanCase {
  /** Folder of a config.json. */
  readonly path: string;
  readonly precision: Precision;
  readonly target: string;
  /** Undefined: `score` alone. */
  readonly cacheTokens?: number;
  /** Undefined: the model's own. */
  readonly layers?: number;
}

/** Milliseconds by what they were spent on. */
export type PartTimes = Readonly<Record<string, number>>;

export interface PlanTimes {
  readonly planSeconds: number;
  /** Processor time of all threads of this process meanwhile. */
  readonly planCpuSeconds: number;
  readonly emitSeconds: number;
  readonly checkSeconds: number;
  /** Launches of all functions, and kernels with different sources. */
  readonly launches: number;
  readonly sources: number;
}

export interface Detail {
  readonly passes: PartTimes;
  readonly signatures: PartTimes;
  readonly schedules: PartTimes;
  readonly emission: PartTimes;
}

/** Matrices of 4 bits as GPTQ stores them, for int4. */
const FOUR_BITS = { quant_method: 'gptq', bits: 4, group_size: 128, sym: true, desc_act: false } as const;

/** A folder with the config.json of `each`, changed as it says; `use` gets it, and it is deleted then. */
export function withConfig<T>({ path, precision, layers }: Omit<PlanCase, 'target'>, use: (folder: string) => T): T {
  const file = join(path, 'config.json');
  const config = parseJson(readFileSync(file, 'utf8'), file) as Readonly<Record<string, unknown>>;
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-compile-'));
  const changed = {
    ...config,
    ...defined({ num_hidden_layers: layers }),
    ...(precision === 'int4' && config['quantization_config'] === undefined ? { quantization_config: FOUR_BITS } : {}),
  };
  try {
    writeFileSync(join(folder, 'config.json'), JSON.stringify(changed));
    return use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const seconds = (work: () => void): number => {
  const start = performance.now();
  work();
  return (performance.now() - start) / 1000;
};

/** Sums of milliseconds by name. */
class TimeSums {
  readonly parts: Record<string, number> = {};

  add(name: string, milliseconds: number): void {
    this.parts[name] = (this.parts[name] ?? 0) + milliseconds;
  }

  timed<T>(name: string | ((result: T) => string), work: () => T): T {
    const start = performance.now();
    const result = work();
    this.add(typeof name === 'string' ? name : name(result), performance.now() - start);
    return result;
  }
}

/** What a kernel is: its anchor, and the skeleton of its schedule where it has one. */
const kindOf = ({ anchor }: Kernel, schedule: unknown): string => {
  const skeleton =
    typeof schedule === 'object' && schedule !== null && 'skeleton' in schedule ? String(schedule.skeleton) : undefined;
  return skeleton === undefined ? anchor : `${anchor} ${skeleton}`;
};

/** Plans `each`, and returns what it took and how to see more of it. Throws UserError. */
export function measureCompile(each: PlanCase): { readonly measured: PlanTimes; detail(): Detail } {
  return withConfig(each, (folder) => {
    const checkpoint = openModel(folder, { kind: 'random', seed: 1 });
    const target = targetOf(each.target);
    const wanted = { target: each.target, precision: each.precision };
    const device = target.compiler.choose(
      wanted,
      detectMachine(),
      checkpoint.config.dtype,
      storedFormats(checkpoint, each.precision),
    );
    const options: PlanOptions = each.cacheTokens === undefined ? {} : { cacheTokens: each.cacheTokens };
    let model: CompiledModel | undefined;
    const before = process.cpuUsage();
    const planSeconds = seconds(() => {
      model = compileModel(checkpoint, target, device, options);
    });
    const { user, system } = process.cpuUsage(before);
    const { plan } = model!;
    let sources = 0;
    const emitSeconds = seconds(() => {
      sources = target.compiler.sources(plan).length;
    });
    // As it is read: other objects, of which nothing is known.
    const read = structuredClone(plan);
    const checkSeconds = seconds(() => checkPlan(read, legalityOf(target.compiler.scheduling, device)));
    const launches = plan.functions.reduce((sum, fn) => sum + fn.launches.length, 0);
    return {
      measured: { planSeconds, planCpuSeconds: (user + system) / 1e6, emitSeconds, checkSeconds, launches, sources },
      detail: () => detailOf(checkpoint, target, device, options),
    };
  });
}

function detailOf(
  checkpoint: Checkpoint,
  target: CompiledModel['target'],
  device: unknown,
  options: PlanOptions,
): Detail {
  const [passes, signatures, schedules, emission] = [new TimeSums(), new TimeSums(), new TimeSums(), new TimeSums()];
  const scheduling: Scheduling<unknown, unknown> = {
    ...target.compiler.scheduling,
    default: (kernel, module, facts, bucket) =>
      schedules.timed(
        (schedule) => kindOf(kernel, schedule),
        () => target.compiler.scheduling.default(kernel, module, facts, bucket),
      ),
  };
  let last = performance.now();
  const observe: Observer = ({ name }) => {
    const now = performance.now();
    passes.add(name, now - last);
    last = now;
  };
  const { plan } = compileModel(
    checkpoint,
    { ...target, compiler: { ...target.compiler, scheduling } },
    device,
    options,
    observe,
  );
  const { functions } = structuredClone(plan);
  for (const fn of functions) {
    const linked = linkFunction({ ...plan, functions }, fn.interface.name);
    for (const kernel of fn.kernels)
      signatures.timed(kernel.anchor, () => kernelSignature(kernel, linked, fn.capacity.extents));
  }
  for (const { interface: own } of plan.functions) {
    const linked = linkFunction(plan, own.name);
    const known = new Set<string>();
    linked.schedules.forEach((chosen) => {
      linked.launches.forEach(({ signature }, i) => {
        const schedule = chosen[signature]!;
        const key = `${signature} ${target.compiler.scheduling.key(schedule)}`;
        if (known.has(key)) return;
        known.add(key);
        const kernel = at(linked.kernels, i);
        emission.timed(kindOf(kernel, schedule), () => target.compiler.print(kernel, linked, schedule));
      });
    });
  }
  return {
    passes: passes.parts,
    signatures: signatures.parts,
    schedules: schedules.parts,
    emission: emission.parts,
  };
}

/** As a program: makes one plan, and prints what it took as JSON: `compilePlan.js CASE [detail]`. */
if (isProgram(import.meta.url)) {
  const [text, wish] = process.argv.slice(2);
  const { measured, detail } = measureCompile(JSON.parse(text!) as PlanCase);
  console.log(JSON.stringify(wish === 'detail' ? { measured, detail: detail() } : { measured }));
}
