/** The commands that the command line calls where nobody hands it others. */
import { compile, run, tune } from '../driver/commands.js';
import { inspectModel } from '../driver/inspect.js';
import { detectMachine } from '../driver/machine.js';
import { mergeShards } from '../eval/index.js';
import type { Commands } from './commands.js';

export const ALL_COMMANDS: Commands = {
  compile, tune, run, merge: mergeShards, inspect: inspectModel,
  doctor: async () => (await import('../driver/doctor.js')).examineMachine(),
  cores: () => detectMachine().cpu.cores,
};
