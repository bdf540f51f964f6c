#!/usr/bin/env node
/** The `tilewright` command. */
import { startEarly, willLoad, willMeasure } from '../driver/devices/startProcess.js';

async function main(): Promise<never> {
  const argv = process.argv.slice(2);
  // Before anything else is loaded: a device takes as long to start as the command does to know what it will do with
  // it.
  if (willLoad(argv)) startEarly(1, willMeasure(argv));
  const [{ processIo }, { createCli }] = await Promise.all([import('./io.js'), import('./program.js')]);
  const io = processIo();
  const status = await createCli(io).run(argv);
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
}

void main();
