/** Which of Node's flags a device process inherits. */
import { expect, it } from 'vitest';
import { deviceEnvironment } from '../../../settings.js';
import { childFlags } from '../../../driver/devices/startProcess.js';

it('keeps flags that mean the same for any program', () => {
  const flags = ['--no-opt', '--max-old-space-size=512', '--import', './hooks.js', '--require=./a.js', '-C', 'dev'];
  expect(childFlags(flags)).toEqual(flags);
});

it("leaves out the parent's program, debugger and tests", () => {
  for (const flags of [
    ['--input-type=module', '-e', 'import "x"'],
    ['--eval', '--no-opt-is-text'],
    ['-p', '1'],
    ['--inspect', '--inspect-brk=0', '--test', '--watch', '--check', '-i'],
    ['--import'],
  ])
    expect(childFlags(flags)).toEqual([]);
});

it('a process of devices has the environment of its parent, and threads for several models', () => {
  expect(deviceEnvironment({ PATH: '/bin' })).toEqual({ PATH: '/bin', UV_THREADPOOL_SIZE: '16' });
  expect(deviceEnvironment({ UV_THREADPOOL_SIZE: '7' })).toEqual({ UV_THREADPOOL_SIZE: '7' });
});
