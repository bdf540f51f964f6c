/** Hostile artifacts: the text of graphs, plans, and whole folders whose hashes fit. */
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadArtifact } from '../../driver/artifact/load.js';
import { saveArtifact } from '../../driver/artifact/save.js';
import { openOrCompile, referenceTo } from '../../driver/compile/open.js';
import { openModel } from '../../driver/functions.js';
import type { Ui } from '../../driver/requests.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { printGraph } from '../../ir/graph/printer.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { llama } from '../passes/llamaGraph.js';
import { mutateBytes, mutateText, pick, type Random, several } from './mutate.js';
import { expectForeseen, expectRefusal, refusedWell } from './refusals.js';

const GRAPH = printGraph(llama({ layers: 1 }));
const WORDS = ['T', '0', '-1', '1e400', '99999999999', '(', ']', '->', '%tokens', '@x', 'f32', 'i32', '"', '/*', 'is'];

function graph(random: Random): void {
  const text = random() < 0.2 ? mutateBytes(Buffer.from(GRAPH), random).toString() : mutateText(GRAPH, random, WORDS);
  let parsed;
  try {
    parsed = parseGraph(text, 'graph.tw');
  } catch (error) {
    expectRefusal(error);
    return;
  }
  const printed = printGraph(parsed);
  if (printGraph(parseGraph(printed)) !== printed) throw new Error(`printed and read again it is another: ${text}`);
  try {
    verifyGraph(parsed, 'graph.tw');
  } catch (error) {
    expectForeseen(error);
  }
}

export const graphs = { about: "the text of graphs, as an artifact's graph.tw", rounds: 150, round: graph };

const DEMO = join(process.cwd(), 'models/demo');
const nothing = (): void => undefined;
const ui: Ui = {
  phase: nothing,
  step: nothing,
  run: nothing,
  table: nothing,
  note: nothing,
  detail: nothing,
  warn: nothing,
};
const machine = detectMachine();

/** The demo's artifact, made once. */
let made: Promise<{ readonly dir: string; readonly texts: Readonly<Record<string, string>> }> | undefined;
async function makeArtifact(): Promise<{ dir: string; texts: Record<string, string> }> {
  const dir = mkdtempSync(join(tmpdir(), 'tilewright-fuzz-'));
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
  const init = { kind: 'checkpoint' } as const;
  const request = { model: DEMO, init, precision: 'auto', batchTokens: 32, target: 'cpu' } as const;
  const { checkpoint, model } = await openOrCompile(request, machine, ui);
  const folder = join(dir, 'demo.tw');
  await saveArtifact(folder, {
    reference: referenceTo(DEMO, checkpoint, init),
    model,
    kernels: { sources: [] },
    isTuned: false,
  });
  const names = ['manifest.json', 'graph.tw', 'plan.json'];
  return {
    dir: folder,
    texts: Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name), 'utf8')])),
  };
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

async function artifact(random: Random): Promise<void> {
  made ??= makeArtifact();
  const { dir, texts } = await made;
  const name = pick(random, ['manifest.json', 'plan.json', 'plan.json', 'graph.tw'] as const);
  const before = texts[name]!;
  const after =
    name === 'graph.tw'
      ? mutateText(before, random, WORDS)
      : random() < 0.1
        ? mutateBytes(Buffer.from(before), random).toString()
        : JSON.stringify(several(JSON.parse(before), random));
  const manifest = JSON.parse(texts['manifest.json']!) as { files: Record<string, string> };
  if (name !== 'manifest.json') manifest.files[name] = sha256(after);
  const forged: Record<string, string> = { ...texts, 'manifest.json': JSON.stringify(manifest), [name]: after };
  for (const [file, text] of Object.entries(forged)) writeFileSync(join(dir, file), text);
  try {
    const { model } = await loadArtifact(
      dir,
      machine,
      random() < 0.5 ? {} : { checkpoint: openModel(DEMO, { kind: 'checkpoint' }) },
    );
    if (name !== 'plan.json') return;
    // What is loaded may differ only in its schedules.
    const shape = (json: string): unknown =>
      JSON.stringify(JSON.parse(json), (key, value: unknown) =>
        ['schedules', 'buckets', 'placements', 'arenaBytes', 'seconds', 'capacity'].includes(key) ? undefined : value,
      );
    if (shape(JSON.stringify(model.plan)) !== shape(JSON.stringify(JSON.parse(before))))
      throw new TypeError('a plan that is not its graph was loaded');
  } catch (error) {
    expectForeseen(error);
    refusedWell(() => {
      throw error;
    });
  }
}

export const artifacts = { about: 'artifact folders whose hashes fit', rounds: 12, round: artifact };
