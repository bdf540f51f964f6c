#!/usr/bin/env node
/** The `tilewright` command. */
import { ALL_COMMANDS } from './allCommands.js';
import { processIo } from './io.js';
import { createCli } from './program.js';

const io = processIo();
const status = await createCli(ALL_COMMANDS, io).run(process.argv.slice(2));
// Native threads and workers must not keep a finished process; what was written must still get out.
await Promise.all(
  [io.stdout, io.stderr].map(
    (stream) =>
      new Promise((resolve) => {
        stream.write('', resolve);
      }),
  ),
);
process.exit(status);
