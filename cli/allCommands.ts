/**
 * The commands that the command line calls where nobody hands it others. Each loads what it needs when called: help
 * needs none of it.
 */
import type { TargetFacts } from '../driver/devices/chooseTarget.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import type { TargetChoice, TargetName } from '../driver/targets/precision.js';
import { defined } from '../system/defined.js';
import type { Commands } from './commands.js';

const commands = () => import('../commands/index.js');

/** The request with the kind of machine that is asked for, or that is here; an artifact names its own. */
async function withTarget<R extends TargetFacts & { readonly target?: TargetChoice }>(
  asked: R,
): Promise<Omit<R, 'target'> & { readonly target?: TargetName }> {
  const { chooseTarget } = await import('../driver/devices/chooseTarget.js');
  const { target } = await chooseTarget(asked);
  const { target: _, ...request } = asked;
  return { ...request, ...defined({ target }) };
}

export const ALL_COMMANDS: Commands = {
  compile: async (request, ui) => (await commands()).compile(request, ui),
  tune: async (request, ui) => (await commands()).tune(request, ui),
  run: async (request, ui) => (await commands()).run(request, ui),
  runTasks: async (request, ui) => (await commands()).runTasks(request, ui),
  generate: async (request, ui, listener) => (await commands()).generate(request, ui, listener),
  converse: async (request, ui) => (await commands()).converse(request, ui),
  printPrompts: async (request, tell) => (await import('../commands/printPrompts.js')).printPrompts(request, tell),
  merge: async (request) => (await import('../commands/mergeParts.js')).mergeParts(request),
  compare: async ({ a, b }) => (await import('../evaluate/compare/compareRuns.js')).compareRuns(a, b),
  report: async (request) => (await import('../commands/report.js')).writeReport(request),
  quantize: async (request, ui) => (await import('../commands/quantize.js')).quantizeCheckpoint(request, ui),
  inspect: async (request) => (await import('../commands/inspect.js')).inspectModel(await withTarget(request)),
  explore: async (request) =>
    (await import('../commands/explore/exploreModel.js')).exploreModel(await withTarget(request)),
  inspectError: async (request) => (await import('../commands/inspectError.js')).inspectError(request),
  listTasks: async (folders) => (await import('../commands/listTasks.js')).listTasks(folders),
  doctor: async () => (await import('../commands/doctor.js')).examineMachine(),
  cores: () => detectMachine().cpu.cores,
};
