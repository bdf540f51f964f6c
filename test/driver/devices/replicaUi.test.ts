import { expect, it } from 'vitest';
import { nameOfReplica, replicaUis } from '../../../driver/devices/openDevices.js';
import { stepTo, type Ui } from '../../../driver/requests.js';

function recorder(): { ui: Ui; said: string[] } {
  const said: string[] = [];
  const none = (): void => undefined;
  return {
    said,
    ui: {
      run: none,
      table: none,
      phase: (name, detail) => said.push(`phase ${name} ${detail ?? ''}`.trim()),
      step: (fraction) => said.push(`step ${fraction}`),
      note: (line) => said.push(`note ${line}`),
      detail: (line) => said.push(`detail ${line}`),
      warn: (line) => said.push(`warn ${line}`),
    },
  };
}

it('numbers devices for display', () => {
  expect([nameOfReplica(2, 1), nameOfReplica(1, 2), nameOfReplica(1, 4)]).toEqual([
    'device 2',
    'devices 2 and 3',
    'devices 4 to 7',
  ]);
});

it('counts what several processes do as one does it', () => {
  const amounts: unknown[] = [];
  const none = (): void => undefined;
  const ui: Ui = {
    run: none,
    table: none,
    phase: none,
    note: none,
    detail: none,
    warn: none,
    step: (fraction, detail) => amounts.push([fraction, detail]),
  };
  const [a, b] = replicaUis(2, 1, ui).of;
  for (const each of [a!, b!]) each.phase('compile kernels');
  stepTo(a!, { done: 4, total: 8, unit: 'kernels' });
  stepTo(b!, { done: 8, total: 8, unit: 'kernels' });
  a!.step(0.5, 'words');
  // The first to go on decides which step is shown: the others' progress in the last one would be added to it.
  a!.phase('load weights');
  stepTo(b!, { done: 8, total: 8, unit: 'kernels' });
  stepTo(a!, { done: 1, total: 2, unit: 'bytes' });
  expect(amounts).toEqual([
    [0.25, { done: 2, total: 8, unit: 'kernels' }],
    [0.75, { done: 6, total: 8, unit: 'kernels' }],
    [0.75, 'words'],
    [0.25, { done: 1, total: 2, unit: 'bytes' }],
  ]);
});

it('shows several processes as one: each step once, mean progress, and the source of a warning', () => {
  const { ui, said } = recorder();
  const {
    of: [a, b],
    quieten,
  } = replicaUis(2, 1, ui, ['compile kernels']);
  for (const each of [a!, b!]) {
    each.phase('compile kernels', '3 of 9');
    each.phase('load weights', 'a GPU');
  }
  a!.step(0.5);
  b!.step(0.25);
  a!.note('weights loaded in 1.5 s');
  b!.note('weights loaded in 1.7 s');
  b!.note('something else');
  b!.warn('slow');
  quieten();
  // A replacement process loads during scoring.
  a!.phase('load more');
  a!.step(0.1);
  a!.note('loaded');
  a!.warn('replaced');
  expect(said).toEqual([
    'phase load weights a GPU',
    'step 0.25',
    'step 0.375',
    'note weights loaded in 1.5 s',
    'note something else',
    'warn device 1: slow',
    'warn device 0: replaced',
  ]);
});
