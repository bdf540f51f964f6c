#!/usr/bin/env node
/** The `tilewright` command. */
import { compile, run, tune } from '../driver/commands.js';
import { inspectModel } from '../driver/inspect.js';
import { detectMachine } from '../driver/machine.js';
import { mergeShards } from '../eval/index.js';
import { processIo } from './io.js';
import { createCli } from './program.js';

const io = processIo();
const cli = createCli({ compile, tune, run, merge: mergeShards, inspect: inspectModel, doctor: async () => (await import('../driver/doctor.js')).examineMachine(), cores: () => detectMachine().cpu.cores }, io);
const status = await cli.run(process.argv.slice(2));
// Native threads and workers must not keep a finished process; what was written must still get out.
await Promise.all([io.stdout, io.stderr].map((stream) => new Promise((resolve) => { stream.write('', resolve); })));
process.exit(status);
