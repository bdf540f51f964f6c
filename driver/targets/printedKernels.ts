/**
 * The kernels of a plan, each printed once for every schedule that it has, and what of them is kept beside the plan:
 * everything but their texts. A text is printed when it is read, which is only to compile it.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Kernel } from '../../ir/kernel.js';
import { restoreOrigins } from '../../ir/scalar.js';
import { headersOfAll, unitDigest } from '../../ir/unit.js';
import { byFunction, type FunctionPlan, type LinkedFunction, type Plan } from '../../ir/plan.js';
import type { SourceText } from '../../runtime/compilers.js';
import { at } from '../../system/at.js';
import { keepCacheEntry, readCacheEntry } from '../cacheEntries.js';
import { MAX_KERNELS } from '../kernelSchema.js';
import { programId } from '../program.js';
import type { CompiledPlan, FactsOf, KernelFacts, PrintedFacts, PrintedText } from './machineCode.js';
import type { CompiledModel, MachineCode } from './target.js';

/** [function][bucket][launch] */
export type PlanTexts<T> = Readonly<Record<string, readonly (readonly T[])[]>>;

/** How a target prints its kernels and keeps what is known of them. */
export interface Printing<S, T extends PrintedText> {
  readonly name: string;
  print(kernel: Kernel, fn: LinkedFunction<S>, schedule: S): T;
  factsOf(text: T, digest: string): FactsOf<T>;
  /** The file in an artifact's kernels/ folder. */
  fileOf(text: T): SourceText;
}

/** A plan's kernels, whose texts may be printed when they are read. */
export interface PrintedPlan<T extends PrintedText> {
  readonly kernels: PlanTexts<T>;
  /** Every kernel with every schedule that the plan gives it, once, by symbol. */
  readonly distinct: ReadonlyMap<string, T>;
  /** A file for each of them, and behind these a file for each header that they include. */
  readonly sources: readonly SourceText[];
}

/** The plan that these kernels are of. */
export function printedPlan<T extends PrintedText>(
  kernels: PlanTexts<T>,
  { fileOf }: Pick<Printing<never, T>, 'fileOf'>,
): PrintedPlan<T> {
  let distinct: ReadonlyMap<string, T> | undefined;
  let sources: readonly SourceText[] | undefined;
  return {
    kernels,
    get distinct() {
      return (distinct ??= distinctOf(kernels));
    },
    get sources() {
      const units = [...this.distinct.values()];
      return (sources ??= [...units.map(fileOf), ...headersOfAll(units)]);
    },
  };
}

/** Identity of a kernel's text and headers. */
const digestOf = ({ digest: known, source, headers }: PrintedText): string => known ?? unitDigest(source, headers);

const digest = z.string().regex(/^[0-9a-f]{64}$/);
/** The name of a kernel in a file. */
export const kernelSymbol = z.string().regex(/^k_[a-z0-9_]{1,190}$/);

/**
 * The form of facts that come from a file of other people. `kernel`: that of one kernel, without the digest of its
 * text: it would name the entry of the cache that the text is compiled into.
 */
export const factsSchema = <F extends PrintedFacts>(kernel: z.ZodType<F>): z.ZodType<KernelFacts<F>> =>
  z
    .strictObject({
      kernels: z.array(kernel).max(MAX_KERNELS),
      places: z.record(
        z.string().max(300),
        z.array(z.record(z.string().regex(/^[0-9a-f]{1,64}$/), z.int().min(0))).max(64),
      ),
      sources: digest,
    })
    .refine(
      ({ kernels, places }) =>
        Object.values(places)
          .flat()
          .every((bucket) => Object.values(bucket).every((place) => place < kernels.length)),
      'names a kernel that it does not have',
    );

/** Prints every kernel of every function with every schedule that the plan gives it. */
export const printKernels = <S, T extends PrintedText>(plan: Plan<S>, printing: Printing<S, T>): PlanTexts<T> =>
  byFunction(plan, (fn) => {
    const byKey = new Map<string, T>();
    const kernelOf = new Map(fn.kernels.map((kernel) => [kernel.name, kernel]));
    return fn.buckets.map((_, bucket) =>
      fn.launches.map(({ kernel: name, signature, parameters }) => {
        const schedule = fn.schedules[bucket]![signature]!;
        const key = `${signature} ${JSON.stringify(schedule)}`;
        const known = byKey.get(key) ?? printing.print(kernelOf.get(name)!, fn, schedule);
        byKey.set(key, known);
        // Equal kernels of different layers differ in the names of what they read and write.
        return { ...known, parameters };
      }),
    );
  });

/** A plan with all of its kernels printed. */
export const emitKernels = <S, T extends PrintedText>(plan: Plan<S>, printing: Printing<S, T>): PrintedPlan<T> =>
  printedPlan(printKernels(plan, printing), printing);

/** A model's kernels, whose texts may be printed when they are read. */
export const modelKernels = <S, D, T extends PrintedText>(
  model: Pick<CompiledModel<S, D>, 'plan' | 'known'>,
  printing: Printing<S, T>,
): PrintedPlan<T> => printedPlan(kernelsOf(model, printing), printing);

/** What a target's compile() returns of a plan that was printed and compiled. */
export const machineCodeOf = async <S, T extends PrintedText>(
  plan: Plan<S>,
  { kernels, sources }: PrintedPlan<T>,
  { code, isCached }: CompiledPlan,
  printing: Printing<S, T>,
): Promise<MachineCode> => ({
  sources,
  code: await code(),
  facts: factsOf(plan, kernels, printing) as KernelFacts,
  isCached,
});

/** What is to be kept of printed kernels. Hashes the texts. */
export function factsOf<S, T extends PrintedText>(
  { functions }: Plan<S>,
  texts: PlanTexts<T>,
  printing: Pick<Printing<S, T>, 'factsOf'>,
): KernelFacts<FactsOf<T>> {
  const kernels: FactsOf<T>[] = [];
  const indices = new Map<string, number>();
  const indexOf = (text: T): number => {
    const known = indices.get(text.symbol);
    if (known !== undefined) return known;
    indices.set(text.symbol, kernels.length);
    return kernels.push(printing.factsOf(text, digestOf(text))) - 1;
  };
  const places = functions.map(({ interface: { name }, launches }) => [
    name,
    texts[name]!.map((own) => Object.fromEntries(launches.map(({ signature }, i) => [signature, indexOf(at(own, i))]))),
  ]);
  return { kernels, places: Object.fromEntries(places) as KernelFacts['places'] };
}

/** The kernels of each bucket of a function. Throws an Error where there are none. */
function placesOf(
  places: KernelFacts['places'],
  { interface: { name }, buckets }: FunctionPlan<unknown>,
): readonly Readonly<Record<string, number>>[] {
  const own = Object.hasOwn(places, name) ? places[name]! : [];
  if (own.length !== buckets.length)
    throw new Error(`${own.length} sets of kernels for ${buckets.length} buckets of ${name}`);
  return own;
}

/** Throws an Error where a launch of the plan has no kernel among the facts, or one of another signature. */
export function checkFacts({ functions }: Plan<unknown>, { kernels, places }: KernelFacts<PrintedFacts>): void {
  for (const fn of functions)
    placesOf(places, fn).forEach((bucket, at) => {
      for (const { signature } of fn.launches) {
        const found = Object.hasOwn(bucket, signature) ? kernels[bucket[signature]!] : undefined;
        if (found?.symbol.split('_')[2] !== signature)
          throw new Error(`bucket ${at} of ${fn.interface.name} has no kernel ${signature}`);
      }
    });
}

/** The kernel whose text and headers `print` returns. */
const lateText = <T extends PrintedText>(facts: FactsOf<T>, parameters: readonly string[], print: () => T): T =>
  ({
    ...facts,
    parameters,
    get source() {
      return print().source;
    },
    get headers() {
      return print().headers;
    },
  }) as unknown as T;

/** The kernels of a plan, of which `facts` are known. Throws an Error where they are those of another plan. */
export const textsOf = <S, T extends PrintedText>(
  plan: Plan<S>,
  { kernels, places }: KernelFacts<FactsOf<T>>,
  printing: Printing<S, T>,
): PlanTexts<T> =>
  byFunction(plan, (fn) => {
    return placesOf(places, fn).map((bucket, at) => {
      const printed = new Map<string, () => T>();
      return fn.launches.map(({ kernel, signature, parameters }) => {
        const facts = Object.hasOwn(bucket, signature) ? kernels[bucket[signature]!] : undefined;
        if (facts === undefined) throw new Error(`bucket ${at} of ${fn.interface.name} has no kernel ${signature}`);
        let print = printed.get(signature);
        if (print === undefined) {
          let text: T | undefined;
          const first = fn.kernels.find((each) => each.name === kernel)!;
          print = () => {
            if (text === undefined) {
              restoreOrigins(first, facts.origins ?? []);
              text = printing.print(first, fn, fn.schedules[at]![signature]!);
            }
            return text;
          };
          printed.set(signature, print);
        }
        return lateText<T>(facts, parameters, print);
      });
    });
  });

/** Each kernel once, by its symbol. */
function distinctOf<T extends PrintedText>(texts: PlanTexts<T>): ReadonlyMap<string, T> {
  const found = new Map<string, T>();
  for (const text of Object.values(texts).flat(2)) if (!found.has(text.symbol)) found.set(text.symbol, text);
  return new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Facts for an artifact, whose machine code is made of `sources`. */
export const factsToSave = ({ kernels, places }: KernelFacts<PrintedFacts>, sources: string): KernelFacts => ({
  kernels: kernels.map(({ digest: _, ...facts }) => facts),
  places,
  sources,
});

const keyOf = (planDigest: string, target: string): string =>
  createHash('sha256')
    .update(JSON.stringify(['kernels', programId(), target, planDigest]))
    .digest('hex');

function keptTexts<S, T extends PrintedText>(key: string, plan: Plan<S>, printing: Printing<S, T>) {
  const entry = readCacheEntry('kernels', key);
  if (entry === undefined) return undefined;
  try {
    return textsOf(plan, JSON.parse(entry.toString('utf8')) as KernelFacts<FactsOf<T>>, printing);
  } catch {
    return undefined;
  }
}

/**
 * The kernels of a compiled model: as it knows them itself, or as the cache does. Else they are printed, and what is
 * known of them is kept.
 */
export function kernelsOf<S, D, T extends PrintedText>(
  { plan, known }: Pick<CompiledModel<S, D>, 'plan' | 'known'>,
  printing: Printing<S, T>,
): PlanTexts<T> {
  if (known?.plan !== plan) return printKernels(plan, printing);
  if (known.kernels !== undefined) return textsOf(plan, known.kernels as KernelFacts<FactsOf<T>>, printing);
  const key = keyOf(known.digest, printing.name);
  const kept = keptTexts(key, plan, printing);
  if (kept !== undefined) return kept;
  const texts = printKernels(plan, printing);
  keepCacheEntry('kernels', key, Buffer.from(JSON.stringify(factsOf(plan, texts, printing))));
  return texts;
}
