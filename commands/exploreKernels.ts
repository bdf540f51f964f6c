/** The kernels of a function for the explorer: kernels of one text once, with their source, schedule and cost. */
import { ratesOf, rooflineSeconds } from '../autotune/peaks.js';
import { sizeOf, type WorkSize } from '../autotune/work.js';
import { originMarks, unmarked } from '../codegen/marks.js';
import type { CompiledModel, ExaminedKernel, KernelTimes, PrintedKernel } from '../driver/targets/target.js';
import { SCORE } from '../ir/function.js';
import type { Node } from '../ir/graph/graph.js';
import { printNode } from '../ir/graph/printer.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { printKernel } from '../ir/kernelPrinter.js';
import type { Bucket, LinkedFunction } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import { groupPath } from '../passes/lowering.js';
import type { Group } from '../passes/placedValues.js';
import type { Pool } from '../report/collect/stages.js';
import type { FunctionKernels, KernelEntry, KernelOp, KernelOperand, SourceSpan } from '../report/document/explore.js';
import { defined } from '../system/defined.js';
import { bytes, count } from '../system/text.js';
import { bucketFor, groupKernels, kernelRows, typicalSize } from './inspectKernels.js';

export interface EntryOptions {
  readonly model: CompiledModel;
  /** Kernels as the passes left them, which know what their programs come from; otherwise the plan's. */
  readonly module: KernelModule | undefined;
  readonly ops: KernelOps;
  readonly tokens: number;
  readonly times: KernelTimes<unknown>;
  readonly texts: Pool<string>;
  /** Whether kernels are compiled for what the compiler says of them. */
  readonly examines: boolean;
}

export async function functionKernels(
  plan: LinkedFunction<unknown>,
  { model, module, ops, tokens, times, texts, examines }: EntryOptions,
): Promise<FunctionKernels> {
  const { index, bucket } = bucketFor(plan, tokens);
  const isScore = plan.interface.name === SCORE;
  const size: WorkSize = isScore ? typicalSize(Math.min(tokens, tokensIn(plan.capacity))) : sizeOf(bucket);
  const rows = kernelRows(plan, size);
  const known = new Map((module?.kernels ?? plan.kernels).map((kernel) => [kernel.name, kernel]));
  const kernels: KernelEntry[] = [];
  for (const { path: title, rows: members } of groupKernels(rows)) {
    const first = members[0]!;
    const kernel = known.get(first.name) ?? plan.kernels.find(({ name }) => name === first.name)!;
    const schedule = plan.schedules[index]![first.signature];
    const marked = model.target.compiler.print(kernel, plan, schedule, originMarks);
    const { text, origins } = unmarked(marked.source);
    const printed = { ...marked, source: text };
    const examined = examines ? await model.target.compiler.examine?.(printed, model.device) : undefined;
    const nodes = ops.get(kernel.name) ?? [];
    const measured = times.measured(plan, kernel, schedule, bucket);
    kernels.push({
      name: first.name,
      title,
      path: first.path,
      count: members.length,
      signature: first.signature,
      anchor: first.anchor,
      shape: first.shape,
      flops: first.flops,
      bytes: first.bytes,
      seconds: rooflineSeconds(first, ratesOf(times.peaks)),
      predictedSeconds: times.predict(plan, kernel, schedule, size),
      ...defined({ measuredSeconds: measured }),
      ops: nodes.map((node): KernelOp => {
        return { op: node.op, name: node.result.name, path: node.path, text: printNode(node).slice(0, 600) };
      }),
      ir: printKernel(kernel),
      operands: operandsOf(kernel, plan),
      schedule: model.target.compiler.scheduling.describe(schedule),
      schedules: schedulesOf(plan, first.signature, model),
      symbol: printed.symbol,
      source: paragraphs(text).map((each) => texts.put(each, () => each)),
      spans: spansOf(origins, new Map(nodes.map((node, i) => [node.result.name, i]))),
      headers: printed.headers.toReversed().map(({ name, text: own }) => [name, texts.put(own, () => own)]),
      resources: resourcesOf(printed, examined),
    });
  }
  return { name: plan.interface.name, size: sizeText(size, bucket, isScore), kernels };
}

const sizeText = ({ extents }: WorkSize, bucket: Bucket, isScore: boolean): string => {
  const all = Object.entries(extents).map(([name, value]) => `${name} = ${count(value)}`);
  return `${all.join(', ')}${isScore ? '' : `, paths of up to ${count(bucket.longest)} tokens`}`;
};

/** Lines that begin something which other kernels may have too. */
const BEGINS = /^$|^#ifndef /;

/** A text in pieces, so that what kernels share is kept once; joined by line breaks they are the text. */
function paragraphs(text: string): readonly string[] {
  const found: string[][] = [];
  for (const line of text.split('\n')) {
    const last = found.at(-1);
    if (last === undefined || BEGINS.test(line)) found.push([line]);
    else last.push(line);
  }
  return found.map((lines) => lines.join('\n'));
}

/** Neighbouring lines of the same ops. */
function spansOf(origins: readonly (readonly string[])[], at: ReadonlyMap<string, number>): readonly SourceSpan[] {
  const spans: SourceSpan[] = [];
  origins.forEach((names, line) => {
    const ops = names.flatMap((name) => at.get(name) ?? []);
    if (ops.length === 0) return;
    const last = spans.at(-1);
    if (last !== undefined && last[1] === line - 1 && last[2].join() === ops.join())
      spans[spans.length - 1] = [last[0], line, ops];
    else spans.push([line, line, ops]);
  });
  return spans;
}

function operandsOf(kernel: Kernel, { buffers, weights }: KernelModule): readonly KernelOperand[] {
  const [reads, writes] = [kernelReads(kernel), kernelWrites(kernel)];
  const buffer = new Map(buffers.map((each) => [each.name, each]));
  const weight = new Map(weights.map((each) => [each.name, each]));
  return [...new Set([...reads, ...writes])].map((name): KernelOperand => {
    const use = !writes.has(name) ? 'reads' : reads.has(name) ? 'reads and writes' : 'writes';
    const [own, packed] = [buffer.get(name), weight.get(name)];
    if (own !== undefined) return { name, type: `${own.dtype}[${own.rows}, ${own.columns}]`, use, space: own.space };
    const rows = packed?.sources.reduce((sum, source) => sum + source.rows, 0) ?? 0;
    return {
      name,
      type: `${packed?.format ?? ''}[${rows}, ${packed?.k ?? 0}] ${packed?.layout ?? ''}`,
      use,
      space: 'weight',
    };
  });
}

/** The schedule of each size of call; neighbours that are alike are one line. */
function schedulesOf(
  { buckets, schedules }: LinkedFunction<unknown>,
  signature: string,
  { target }: CompiledModel,
): readonly (readonly [string, string])[] {
  const lines: { first: number; last: number; text: string }[] = [];
  buckets.forEach((bucket, i) => {
    const text = target.compiler.scheduling.describe(schedules[i]![signature]);
    const tokens = tokensIn(bucket);
    const last = lines.at(-1);
    if (last?.text === text) last.last = tokens;
    else lines.push({ first: tokens, last: tokens, text });
  });
  return lines.map(({ first, last, text }) => [
    first === last ? `${count(first)}` : `${count(first)}–${count(last)}`,
    text,
  ]);
}

function resourcesOf(
  { launch, scratchBytes }: PrintedKernel,
  { resources, note }: ExaminedKernel = {},
): readonly (readonly [string, string])[] {
  const found: (readonly [string, string])[] = [];
  if (scratchBytes !== undefined) found.push(['scratch memory', `${bytes(scratchBytes)} a thread`]);
  if (launch !== undefined) {
    const cluster = launch.cluster > 1 ? `, in clusters of ${launch.cluster}` : '';
    found.push(
      ['block', `${launch.threads} threads${cluster}`],
      ['shared memory', `${bytes(launch.sharedBytes)} a block`],
    );
  }
  if (resources !== undefined) {
    const { registers, spillStoreBytes, spillLoadBytes } = resources;
    const spilled = spillStoreBytes + spillLoadBytes;
    found.push(
      ['registers', `${registers} a thread`],
      ['spills', spilled === 0 ? 'none' : `${spillStoreBytes} bytes stored, ${spillLoadBytes} loaded`],
    );
  }
  if (note !== undefined) found.push(['not compiled', note]);
  return found;
}

/** The ops of kernels by the kernels' names. */
export type KernelOps = ReadonlyMap<string, readonly Node[]>;

/** Kernels of a module that was just lowered: a group makes one kernel, or several of them one behind another. */
export function opsOfGroups({ kernels }: KernelModule, groups: readonly Group[]): KernelOps {
  const found = new Map<string, readonly Node[]>();
  let at = -1;
  for (const { name, path } of kernels) {
    const next = groups[at + 1];
    if (next !== undefined && groupPath(next) === path) at++;
    const group = groups[at];
    if (group !== undefined) found.set(name, [...group.anchors, ...group.members]);
  }
  return found;
}

/** After a pass: the ops of a kernel that is gone are with the kernel that writes what it wrote. */
export function followOps(ops: KernelOps, last: KernelModule, next: KernelModule): KernelOps {
  const found = new Map(next.kernels.map(({ name }) => [name, ops.get(name) ?? []]));
  const writerOf = new Map(next.kernels.flatMap((kernel) => [...kernelWrites(kernel)].map((b) => [b, kernel.name])));
  for (const kernel of last.kernels) {
    if (found.has(kernel.name)) continue;
    const heir = [...kernelWrites(kernel)].map((buffer) => writerOf.get(buffer)).find((name) => name !== undefined);
    if (heir !== undefined) found.set(heir, [...found.get(heir)!, ...(ops.get(kernel.name) ?? [])]);
  }
  return found;
}
