/**
 * The commands that the command line calls where nobody hands it others. Each loads what it needs when called: help
 * needs none of it.
 */
import { detectMachine } from '../driver/machine.js';
import type { Commands } from './commands.js';

const commands = () => import('../driver/commands/index.js');

export const ALL_COMMANDS: Commands = {
  compile: async (request, ui) => (await commands()).compile(request, ui),
  tune: async (request, ui) => (await commands()).tune(request, ui),
  run: async (request, ui) => (await commands()).run(request, ui),
  runTasks: async (request, ui) => (await commands()).runTasks(request, ui),
  generate: async (request, ui, listener) => (await commands()).generate(request, ui, listener),
  converse: async (request, ui) => (await commands()).converse(request, ui),
  merge: async (request) => (await import('../driver/commands/mergeParts.js')).mergeParts(request),
  compare: async ({ a, b }) => (await import('../eval/compare/compareRuns.js')).compareRuns(a, b),
  report: async (request) => (await import('../report/writeReport.js')).writeReport(request),
  quantize: async (request, ui) =>
    (await import('../driver/quantise/quantiseCheckpoint.js')).quantiseCheckpoint(request, ui),
  inspect: async ({ target: asked, ...request }) => {
    const { chooseTarget } = await import('../driver/devices/chooseTarget.js');
    const { target } = await chooseTarget({ ...request, ...(asked === undefined ? {} : { target: asked }) });
    return (await import('../driver/commands/inspect.js')).inspectModel({
      ...request,
      ...(target === undefined ? {} : { target }),
    });
  },
  explore: async ({ target: asked, ...request }) => {
    const { chooseTarget } = await import('../driver/devices/chooseTarget.js');
    const { target } = await chooseTarget({ ...request, ...(asked === undefined ? {} : { target: asked }) });
    return (await import('../driver/explore/exploreModel.js')).exploreModel({
      ...request,
      ...(target === undefined ? {} : { target }),
    });
  },
  inspectError: async (request) => (await import('../driver/commands/inspectError.js')).inspectError(request),
  listTasks: async (folders) => (await import('../driver/commands/listTasks.js')).listTasks(folders),
  doctor: async () => (await import('../driver/commands/doctor.js')).examineMachine(),
  cores: () => detectMachine().cpu.cores,
};
